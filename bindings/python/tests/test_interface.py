"""The module's idea of the C interface is that of its header."""

import ctypes
import re
import unittest
from pathlib import Path

from bickford import interface

HEADER = Path(__file__).resolve().parents[3] / "crates/bickford-ffi/include/bickford.h"
TYPES = {
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "struct bickford_time": interface.Time,
    "struct bickford_attr": interface.Attr,
    "struct bickford_statfs": interface.Statfs,
    "bickford_dispatch": interface.Dispatch,
    "bickford_open": interface.Open,
    "bickford_begun": interface.Begun,
}


class Interface(unittest.TestCase):
    def setUp(self):
        self.header = HEADER.read_text()

    def fields(self, name):
        body = re.search(rf"typedef struct {name} {{(.*?)}} {name};", self.header, re.DOTALL)[1]
        for line in re.sub(r"//.*", "", body).split(";"):
            if line.strip():
                of, pointer, field = re.fullmatch(r"\s*(.*?) ((?:\*const )?\*?)(\w+)", line, re.DOTALL).groups()
                yield field, ctypes.c_void_p if pointer else TYPES[of.removeprefix("const ")]

    def test_structures(self):
        for name, structure in (
            ("bickford_time", interface.Time),
            ("bickford_attr", interface.Attr),
            ("bickford_statfs", interface.Statfs),
            ("bickford_answer", interface.Answer),
            ("bickford_config", interface.Config),
            ("bickford_request", interface.Request),
            ("bickford_callbacks", interface.Callbacks),
        ):
            self.assertEqual(list(self.fields(name)), structure._fields_, name)

    def test_structures_of_programs(self):
        for name, structure in (
            ("bickford_flag", interface.Flag),
            ("bickford_invocation", interface.Invocation),
            ("bickford_program", interface.Program),
        ):
            # What a pointer points to is the module's own.
            numbers = (ctypes.c_uint32, ctypes.c_uint64, interface.Open, interface.Begun)
            fields = [(field, of if of in numbers else ctypes.c_void_p) for field, of in structure._fields_]
            self.assertEqual(list(self.fields(name)), fields, name)

    def test_numbers(self):
        given = dict(re.findall(r"#define (BICKFORD_\w+) \(?(-?\d+(?: << \d+)?)", self.header))
        numbers = {f"BICKFORD_OP_{name.upper()}": number for name, number in interface.OPERATIONS.items()}
        numbers |= {f"BICKFORD_UNMOUNT_{mode.upper()}": number for mode, number in interface.UNMOUNT.items()}
        numbers["BICKFORD_OP_SETATTR"] = interface.SETATTR
        numbers["BICKFORD_ABI_VERSION"] = interface.ABI_VERSION
        numbers["BICKFORD_ERROR_TIMEOUT"] = interface.ERROR_TIMEOUT
        for name in vars(interface):
            if name.startswith("HAS_"):
                numbers[f"BICKFORD_{name}"] = getattr(interface, name)
        self.assertGreater(len(numbers), 40)
        for name, number in numbers.items():
            self.assertEqual(number, eval(given[name]), name)


if __name__ == "__main__":
    unittest.main()
