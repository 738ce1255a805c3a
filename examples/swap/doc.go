// Package swap contains one service twice: before the swap in pipeline mode, and after it in scripted mode. The two
// programs differ in one line.
//
//	diff examples/swap/before/main.go examples/swap/after/main.go
//	go run ./examples/swap/before
//	go run ./examples/swap/after --redis localhost:6379
package swap
