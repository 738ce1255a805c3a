package stream

import (
	"encoding/binary"
	"errors"
)

var errMessagePack = errors.New("is no MessagePack map of texts")

// textMap decodes a MessagePack map of texts; bytes count as text, and nothing at all or nil as an empty map.
func textMap(data []byte) (map[string]string, error) {
	if len(data) == 0 || string(data) == "\xc0" {
		return nil, nil
	}
	d := &unpacker{rest: data}
	n := d.length(0x80, 0x0f, map[byte]int{0xde: 2, 0xdf: 4})
	out := map[string]string{}
	for range n {
		key := d.text()
		out[key] = d.text()
		if d.bad {
			break
		}
	}
	if d.bad || len(d.rest) > 0 {
		return nil, errMessagePack
	}
	return out, nil
}

type unpacker struct {
	rest []byte
	bad  bool
}

func (d *unpacker) take(n int) []byte {
	if d.bad || n > len(d.rest) {
		d.bad = true
		return nil
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out
}

// length reads the head of a value: a byte fix with the length in the bits of mask, or one of wide, which says how many
// bytes the length has.
func (d *unpacker) length(fix, mask byte, wide map[byte]int) int {
	head := d.take(1)
	switch {
	case d.bad:
		return 0
	case head[0]&^mask == fix:
		return int(head[0] & mask)
	case wide[head[0]] == 0:
		d.bad = true
		return 0
	}
	size := d.take(wide[head[0]])
	if d.bad {
		return 0
	}
	return int(binary.BigEndian.Uint32(append(make([]byte, 4-len(size)), size...)))
}

func (d *unpacker) text() string {
	return string(d.take(d.length(0xa0, 0x1f, map[byte]int{0xd9: 1, 0xda: 2, 0xdb: 4, 0xc4: 1, 0xc5: 2, 0xc6: 4})))
}
