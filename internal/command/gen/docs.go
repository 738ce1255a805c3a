package main

func docs() string { return "" }
