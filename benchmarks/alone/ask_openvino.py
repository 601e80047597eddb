"""Intel's converter alone, for the Python of its toolchain: `ask_openvino.py MODEL`; exit status 0 if it converts."""

import sys

import openvino  # type: ignore[import-not-found]

try:
    openvino.save_model(openvino.convert_model(sys.argv[1]), "model.xml")
except Exception as error:  # the converter's exceptions have no base of their own
    sys.exit(str(error))
