"""Measurements, side by side and on real input; nothing here is a test and nothing imports it.

`retail.py` runs the customer-service tasks of a retail data set through the runtime and judges the
outcome; `run.py` (behind `make bench`) measures the runtime next to its floors and its peers.
"""
