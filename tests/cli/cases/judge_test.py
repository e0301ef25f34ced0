"""Shows that the judge of the cases finds what is wrong: one that can't fail proves nothing."""

import json
import math
import pathlib
import struct
import tempfile
import unittest

from case import Case
from compare import byte_differences, differences
from judge import Ending, judge
from number_formats import decode, from_bits, is_nan, multiply, to_bits
from pack_values import Pack, Tensor
from program import Run


def f32(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


class NumberFormats(unittest.TestCase):
    def test_decodes_the_corners_of_each_format(self):
        for dtype, code, value in (
            ("F8_E4M3", 0x7E, 448.0),
            ("F8_E4M3", 0x01, 2.0**-9),
            ("F8_E4M3", 0x80, -0.0),
            ("F8_E5M2", 0x7B, 57344.0),
            ("F8_E5M2", 0xFC, -math.inf),
            ("F8_E4M3FNUZ", 0x7F, 240.0),
            ("F8_E5M2FNUZ", 0x7F, 57344.0),
            ("F8_E8M0", 0x00, 2.0**-127),
            ("F8_E8M0", 0xFE, 2.0**127),
        ):
            with self.subTest(dtype=dtype, code=code):
                self.assertEqual(decode(dtype, bytes([code])), [to_bits(value)])
        for dtype, code in (("F8_E4M3", 0xFF), ("F8_E5M2", 0x7D), ("F8_E4M3FNUZ", 0x80)):
            self.assertTrue(is_nan(decode(dtype, bytes([code]))[0]))

    def test_decodes_halves_with_the_payload_of_a_nan(self):
        codes = struct.pack("<4H", 0x0001, 0x7BFF, 0xFC00, 0x7C01)
        self.assertEqual(
            decode("F16", codes),
            [to_bits(2.0**-24), to_bits(65504.0), 0xFF800000, 0x7F802000],
        )
        self.assertEqual(decode("BF16", struct.pack("<H", 0x7F81)), [0x7F810000])

    def test_rounds_products_once_to_even(self):
        self.assertEqual(from_bits(multiply(to_bits(3.0), to_bits(0.5))), 1.5)
        tie = multiply(to_bits(1 + 2.0**-12), to_bits(1 + 2.0**-12))  # 1 + 2^-11 + 2^-24
        self.assertEqual(from_bits(tie), 1 + 2.0**-11)
        self.assertEqual(multiply(to_bits(2.0**100), to_bits(-(2.0**100))), 0xFF800000)


def scaled(shape: tuple, scale_shape: tuple, factors: bytes, **scale) -> Tensor:
    count = math.prod(shape)
    return Tensor("BF16", shape, struct.pack("<H", 0x3F80) * count, scale,
                  Tensor("F32", scale_shape, factors))  # fmt: skip


class Scales(unittest.TestCase):
    def values(self, *arguments, **scale) -> list[float]:
        return [from_bits(bits) for bits in scaled(*arguments, **scale).values()]

    def test_each_granularity_takes_its_own_factor(self):
        for granularity, shape, wanted in (
            ("row", (2, 1), [2, 2, 3, 3]),
            ("column", (1, 2), [2, 3, 2, 3]),
        ):
            values = self.values((2, 2), shape, f32(2, 3), granularity=granularity)
            self.assertEqual(values, wanted)

    def test_tiles_are_cut_at_the_edges(self):
        values = self.values(
            (3, 3), (2, 2), f32(1, 2, 3, 4), granularity="block", block_shape=[2, 2]
        )
        self.assertEqual(values, [1, 1, 2, 1, 1, 2, 3, 3, 4])

    def test_exponent_codes_are_decoded(self):
        codes = Tensor("F8_E8M0", (2, 2), bytes([127, 128, 126, 0]))
        scale = {"granularity": "block", "block_shape": [1, 32]}
        tensor = Tensor("BF16", (2, 33), struct.pack("<H", 0x3F80) * 66, scale, codes)
        wanted = [1.0] * 32 + [2.0] + [0.5] * 32 + [2.0**-127]
        self.assertEqual([from_bits(bits) for bits in tensor.values()], wanted)

    def test_refuses_a_scale_that_does_not_fit(self):
        with self.assertRaises(ValueError):
            self.values((3, 3), (1, 2), f32(1, 2), granularity="block", block_shape=[2, 2])


class Compare(unittest.TestCase):
    def setUp(self):
        self.wanted = {"w": Tensor("F32", (2,), f32(1, 2))}

    def found(self, tensor: Tensor, rtol: float = 0) -> list[str]:
        return differences(Pack({"w": tensor}, {}), self.wanted, {}, rtol)

    def test_accepts_what_is_equal(self):
        self.assertEqual(self.found(self.wanted["w"]), [])
        self.assertEqual(self.found(Tensor("BF16", (2,), struct.pack("<2H", 0x3F80, 0x4000))), [])

    def test_finds_one_bit_a_shape_and_another_type(self):
        bits = Tensor("F32", (2,), struct.pack("<2I", to_bits(1), to_bits(2) + 1))
        self.assertEqual(len(self.found(bits)), 1)
        self.assertEqual(self.found(bits, rtol=1e-6), [])
        self.assertEqual(len(self.found(Tensor("F32", (1, 2), f32(1, 2)))), 1)
        self.assertEqual(len(self.found(Tensor("I32", (2,), struct.pack("<2i", 1, 2)))), 1)

    def test_finds_the_changed_payload_of_a_nan(self):
        self.wanted = {"w": Tensor("F32", (1,), struct.pack("<I", 0x7FC10000))}
        self.assertEqual(self.found(Tensor("BF16", (1,), struct.pack("<H", 0x7FC1))), [])
        self.assertEqual(len(self.found(Tensor("BF16", (1,), struct.pack("<H", 0x7FC0)))), 1)

    def test_finds_what_is_missing_or_too_much(self):
        tensor = self.wanted["w"]
        self.assertEqual(len(differences(Pack({}, {}), self.wanted, {}, 0)), 1)
        both = Pack({"w": tensor, "v": tensor}, {})
        self.assertEqual(differences(both, self.wanted, {}, 0), ["v is not expected"])
        tied = {"w": tensor, "tied": tensor}
        self.assertEqual(differences(Pack({"w": tensor}, {"tied": "w"}), tied, {}, 0), [])

    def test_compares_bytes_with_the_source(self):
        tensor = self.wanted["w"]
        self.assertEqual(byte_differences(Pack({"w": tensor}, {}), {"w": tensor}), [])
        self.assertEqual(len(byte_differences(Pack({"w": tensor}, {}), {})), 1)
        other = Tensor("F32", (2,), f32(1, 3))
        self.assertEqual(len(byte_differences(Pack({"w": other}, {}), {"w": tensor})), 1)
        left_over = byte_differences(Pack({}, {}), {"w": tensor})
        self.assertEqual(left_over, ["w is missing"])


class StandIn:
    """A program that says what it is told to, whatever it is asked."""

    def __init__(self, exit_code: int, code: str, message: str, *, makes_output: bool = False):
        error = {"type": "error", "code": code, "exit": exit_code, "message": message, "hint": ""}
        self.result = Run(exit_code, "", json.dumps(error) + "\n")
        self.makes_output = makes_output

    def run(self, command: str, *arguments) -> Run:
        if self.makes_output and command == "repack":
            pathlib.Path(arguments[-1]).mkdir()
        return self.result


class Judge(unittest.TestCase):
    def ending(self, program: StandIn, **expected) -> Ending:
        listed = {"id": "x", "group": "y", "outcome": "error", "error_class": "offsets"}
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder) / "work"
            work.mkdir()
            case = Case(pathlib.Path(folder), pathlib.Path("x"), listed, expected)
            return judge(case, program, work).ending

    def test_takes_the_error_that_is_asked_for(self):
        program = StandIn(4, "offsets", "tensor w overlaps")
        self.assertEqual(self.ending(program, message_names=["w"]), Ending.ERROR)

    def test_finds_another_class_exit_code_name_or_a_left_over(self):
        for program in (
            StandIn(4, "trailing", "tensor w overlaps"),
            StandIn(1, "offsets", "tensor w overlaps"),
            StandIn(4, "offsets", "a tensor overlaps"),
            StandIn(4, "offsets", "tensor w overlaps", makes_output=True),
        ):
            self.assertEqual(self.ending(program, message_names=["w"]), Ending.FAILED)

    def test_finds_forbidden_text(self):
        program = StandIn(4, "offsets", "boo")
        self.assertEqual(self.ending(program, must_not_print=["boo"]), Ending.FAILED)


if __name__ == "__main__":
    unittest.main()
