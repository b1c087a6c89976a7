"""How many of an encoder's last layers must be fine-tuned to keep 90 % of its quality?"""

__version__ = "0.1.0"
