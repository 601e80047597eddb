"""One folder for each compiler that needs code: `backend.py` drives it, `log.py` reads what it prints."""
