"""Arithmetic in text, without running it as code."""

from __future__ import annotations

import ast
import operator
from decimal import Decimal

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def calculate(expression: str) -> Decimal:
    """The value of an expression of numbers and + - * / ( ). Raises `ArithmeticError`."""
    try:
        return evaluate(ast.parse(expression, mode="eval"))
    except SyntaxError:
        raise ArithmeticError("the expression cannot be read") from None


def evaluate(node: ast.AST) -> Decimal:
    """The value of an arithmetic syntax tree of numbers and + - * / ( )."""
    if isinstance(node, ast.Expression):
        return evaluate(node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return Decimal(str(node.value))
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](evaluate(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](evaluate(node.left), evaluate(node.right))
    raise ArithmeticError("only numbers and + - * / ( ) are understood")
