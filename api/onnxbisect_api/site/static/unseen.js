// A page that nobody looks at asks for nothing; once it is looked at again, htmx's trigger on `visibilitychange` asks.
"use strict";

document.addEventListener("htmx:before:request", (event) => {
  if (document.hidden) event.preventDefault();
});
