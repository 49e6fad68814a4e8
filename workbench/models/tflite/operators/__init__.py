"""How models of one operator are drawn: a module for each class of them."""
