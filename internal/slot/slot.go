// Package slot computes the slot of a key among the 16,384 slots of Redis Cluster. It also returns a short readable
// text that hashes to a given slot.
package slot

import (
	"strconv"
	"strings"
	"sync"
)

// Count is the number of slots of a Redis Cluster.
const Count = 16384

// crcTable is the table of CRC16-CCITT (XMODEM), the checksum that Redis Cluster specifies.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// Of returns the slot of a key. If the text between the first { and the next } is not empty, only this text is hashed.
// Otherwise, the whole key is hashed.
func Of(key string) int {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	return OfTag(key)
}

// OfTag returns the slot of a tag, which is the text between the braces.
func OfTag(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc) % Count
}

// texts contains for each slot the first of the numbers 0, 1, 2 … in base 36 that hashes to it.
var texts = sync.OnceValue(func() *[Count]string {
	var table [Count]string
	for n, left := int64(0), Count; left > 0; n++ {
		text := strconv.FormatInt(n, 36)
		if s := OfTag(text); table[s] == "" {
			table[s] = text
			left--
		}
	}
	return &table
})

// Text returns a short text that hashes to the slot n, which must be in [0, Count). ⚠ The table must never change,
// because the names of keys in users' servers contain its texts.
func Text(n int) string { return texts()[n] }
