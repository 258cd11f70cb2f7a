"""A long run of every kind of request against one runtime: are all answered, and does its memory stay flat?"""
