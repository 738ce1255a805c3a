package commit

import "fmt"

// position returns the position of the ith transaction of a batch.
func (d draw) position(i int) *Position {
	p := &Position{Field: fmt.Sprintf("orders/%d", i%2), Offset: fmt.Sprintf("%02d", 10+i), Owner: OwnerOf(7, "e 1")}
	if i > 1 && d.IntN(2) == 0 {
		p.After = fmt.Sprintf("%02d", 8+i)
	}
	switch d.IntN(40) {
	case 0:
		p.Field = "orders/0"
	case 1:
		p.Offset = d.one("05", "10", "11")
	case 2:
		p.Offset = "100"
	case 3:
		p.After = d.one("05", "09")
	case 4:
		p.Owner = OwnerOf(d.Int64N(2)*2+6, d.one("e 1", "other", ""))
	}
	return p
}

// record returns the record of a position before the transactions, or an empty text for none.
func (d draw) record() string {
	if d.IntN(4) == 0 {
		return ""
	}
	token := d.one("token00009", "token00000", "token00001")
	switch d.IntN(16) {
	case 0:
		return token + d.one("10", "11", "20") + OwnerOf(7, "e 1")
	case 1:
		return token + "09" + OwnerOf(8, "e 1")
	case 2:
		return token + "09" + OwnerOf(6, "e 1")
	case 3:
		return token + "09" + OwnerOf(7, d.one("", "other"))
	case 4:
		return token + "09!7 e 1"
	case 5:
		return token + OwnerOf(d.Int64N(3)+6, "")
	case 6:
		return d.one("token", token+"words", token+"09 x e 1", token+"009"+OwnerOf(7, "e 1"))
	default:
		return token + "09" + OwnerOf(7, "e 1")
	}
}
