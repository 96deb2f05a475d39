"""One epoch of SGD beside Surprise's, and one sweep…"""
