// Package docs reads the project's Markdown: headings, links and code blocks. Its tests compile and run the Go blocks that are marked for
// it, and compare docs/keys.md with the scripts.
//
// The mark of a block follows the language of its fence. Rendered Markdown does not show it:
//
//	```go run      the tests compile and run the block, and compare its output with the comment "// Output:" at its end
//	```go build    the tests only compile the block, because it needs something that a test lacks, or never ends
//
// A block is a whole program (package main), declarations, statements, or both of the latter. Statements can use ctx, t (a *testing.T),
// client and transactor, with an embedded Redis for each block, and the declarations of testdata/setup/<page>.go. The tests add the
// imports. If a statement assigns an error to err, and the next statement does not check err, the error fails the block. { … } is an
// empty block.
package docs
