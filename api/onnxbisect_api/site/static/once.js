// The page with a new secret answers a form. Reloading it asks for the page, and does not send the form again.
"use strict";

history.replaceState(null, "", document.currentScript?.dataset.address ?? location.pathname);
