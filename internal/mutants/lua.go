package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// luaMutants returns the mutants of a script or fragment, all of which parse.
func luaMutants(file, text string) ([]mutant, error) {
	tokens, err := scanLua(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	l := &luaFinder{file: file, text: text, tokens: tokens}
	for i := range tokens {
		l.at(i)
	}
	kept := l.found[:0]
	for _, m := range l.found {
		if _, err := parse.Parse(strings.NewReader(strings.ReplaceAll(m.edited(), "@", "_")), file); err == nil {
			kept = append(kept, m)
		}
	}
	return kept, nil
}

type luaToken struct {
	text       string
	start, end int
	kind       byte // n number, s string, w word, p punctuation
}

// scanLua splits Lua 5.1 into tokens and omits comments. A name may begin with a sigil; see package lua.
func scanLua(text string) ([]luaToken, error) {
	var tokens []luaToken
	for i := 0; i < len(text); {
		c := text[i]
		start, kind := i, byte('p')
		switch {
		case strings.ContainsRune(" \t\r\n", rune(c)):
			i++
			continue
		case strings.HasPrefix(text[i:], "--"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		case c == '\'' || c == '"':
			kind = 's'
			for i++; i < len(text) && text[i] != c; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			i++
		case strings.HasPrefix(text[i:], "[["):
			return nil, fmt.Errorf("byte %d: long strings are not supported", i)
		case isDigit(c):
			kind = 'n'
			for i < len(text) && (isWord(text[i]) || text[i] == '.' && i+1 < len(text) && isDigit(text[i+1])) {
				i++
			}
		case isWord(c):
			kind = 'w'
			for i < len(text) && isWord(text[i]) {
				i++
			}
		default:
			i++
			for _, long := range []string{"...", "..", "==", "~=", "<=", ">="} {
				if strings.HasPrefix(text[start:], long) {
					i = start + len(long)
					break
				}
			}
		}
		if i > len(text) {
			return nil, fmt.Errorf("byte %d: a string has no end", start)
		}
		tokens = append(tokens, luaToken{text[start:i], start, i, kind})
	}
	return tokens, nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return c == '_' || c == '@' || isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

type luaFinder struct {
	file, text string
	tokens     []luaToken
	found      []mutant
}

func (l *luaFinder) replace(op string, start, end int, with string) {
	l.found = append(l.found, mutant{file: l.file, op: op, text: l.text, start: start, end: end, with: with})
}

var luaSwaps = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==", "and": "or", "or": "and", "+": "-", "-": "+",
}

func (l *luaFinder) at(i int) {
	t := l.tokens[i]
	switch {
	case t.kind == 'n':
		if value, err := strconv.Atoi(t.text); err == nil {
			l.replace("shift a number", t.start, t.end, strconv.Itoa(value+1))
		}
	case t.kind == 's':
	case t.text == "if" || t.text == "elseif" || t.text == "while":
		l.condition(i)
	case t.text == "function":
		l.earlyReturn(i)
	case t.text == "(":
		l.call(i)
	default:
		if with, ok := luaSwaps[t.text]; ok && (t.text != "-" || l.endsOperand(i-1)) {
			l.replace("swap "+t.text, t.start, t.end, with)
		}
		if t.text == "or" {
			l.defaulted(i)
		}
	}
}

// endsOperand reports whether a token ends an operand, so that a minus after it means subtraction.
func (l *luaFinder) endsOperand(i int) bool {
	if i < 0 {
		return false
	}
	t := l.tokens[i]
	switch t.text {
	case ")", "]", "}", "end", "nil", "true", "false":
		return true
	case "and", "or", "not", "return", "then", "do", "else", "in", "local", "if", "elseif", "while", "until", "repeat", "function":
		return false
	}
	return t.kind != 'p'
}

func (l *luaFinder) condition(i int) {
	for j := i + 1; j < len(l.tokens); j++ {
		if l.tokens[j].text == "then" || l.tokens[j].text == "do" {
			start, end := l.tokens[i+1].start, l.tokens[j-1].end
			l.replace("negate a condition", start, end, "not ("+l.text[start:end]+")")
			return
		}
	}
}

func (l *luaFinder) earlyReturn(i int) {
	for j := i + 1; j < len(l.tokens); j++ {
		if l.tokens[j].text == ")" {
			l.replace("return early", l.tokens[j].end, l.tokens[j].end, " do return end")
			return
		}
	}
}

// defaulted drops `or <literal>`.
func (l *luaFinder) defaulted(i int) {
	if i+1 >= len(l.tokens) {
		return
	}
	if next := l.tokens[i+1]; next.kind == 'n' || next.kind == 's' {
		l.replace("drop a default", l.tokens[i-1].end, next.end, "")
	}
}

// call mutates the call whose opening bracket is token i.
func (l *luaFinder) call(i int) {
	first := l.callee(i)
	if first < 0 {
		return
	}
	name := l.text[l.tokens[first].start:l.tokens[i-1].end]
	args, end := l.arguments(i)
	redis := name == "redis.call" || name == "redis.pcall"
	if redis && !l.endsExpression(first) {
		l.replace("drop a call of Redis", l.tokens[first].start, end, "")
	}
	from := 0
	if redis {
		from = 1 // the command's name
	}
	for n := from; n < len(args); n++ {
		if redis && len(args) > 2 {
			l.replace("drop an argument", args[n-1][1], args[n][1], "")
		}
		if n > from {
			one, two := l.text[args[n-1][0]:args[n-1][1]], l.text[args[n][0]:args[n][1]]
			if one != two && !anyOrder(name, l.text[args[0][0]:args[0][1]]) {
				l.replace("swap two arguments", args[n-1][0], args[n][1], two+", "+one)
			}
		}
	}
}

// anyOrder reports whether the order of a call's arguments does not matter.
func anyOrder(name, first string) bool {
	return name == "math.max" || name == "math.min" || first == "'EXISTS'" || first == "'UNLINK'"
}

// callee returns the first token of the name before the bracket i, or -1 if the bracket does not call a name.
func (l *luaFinder) callee(i int) int {
	first := i - 1
	if first < 0 || l.tokens[first].kind != 'w' || !l.endsOperand(first) {
		return -1
	}
	for first >= 2 && l.tokens[first-1].text == "." {
		first -= 2
	}
	if first > 0 && l.tokens[first-1].text == "function" {
		return -1
	}
	return first
}

// endsExpression reports whether the token before first makes the following tokens part of an expression.
func (l *luaFinder) endsExpression(first int) bool {
	if first == 0 {
		return false
	}
	switch t := l.tokens[first-1]; t.text {
	case "and", "or", "not", "return", "in", "if", "elseif", "while", "until":
		return true
	case ")", "]", "}", ";":
		return false
	default:
		return t.kind == 'p'
	}
}

// arguments returns the byte ranges of the arguments of the call whose bracket is token i, and the end of the call.
func (l *luaFinder) arguments(i int) (args [][2]int, end int) {
	depth, start := 0, i+1
	for j := i; j < len(l.tokens); j++ {
		switch t := l.tokens[j]; t.text {
		case "(", "{", "[":
			depth++
		case ")", "}", "]":
			depth--
		case "function":
			depth++
		case "end":
			depth--
		case "if", "do":
			depth++
		}
		closes := depth == 0
		if (closes || depth == 1 && l.tokens[j].text == ",") && j > start {
			args = append(args, [2]int{l.tokens[start].start, l.tokens[j-1].end})
			start = j + 1
		}
		if closes {
			return args, l.tokens[j].end
		}
	}
	return args, len(l.text)
}
