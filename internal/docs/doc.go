// Package docs reads the project's Markdown: headings, links and blocks of code. Its tests compile and run the blocks
// of Go that are marked for it, and hold docs/keys.md against the scripts.
//
// A block is marked by the word behind the language of its fence, which nobody sees where Markdown is rendered:
//
//	```go run      is compiled and run; what it prints is compared with the comment "// Output:" at its end
//	```go build    is compiled: it needs what is not there in a test, or has no end
//
// A block is a whole program (package main), declarations, statements, or both. Statements are given ctx, t (a
// *testing.T), client and transactor, on an embedded Redis of their own, and what
// testdata/setup/<page>.go declares for their page; imports are added. An error that a statement assigns to err ends the block
// as failed, unless the next statement looks at it, and { … } is an empty block.
package docs
