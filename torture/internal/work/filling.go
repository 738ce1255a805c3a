package work

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/luatx/luatx/message"
)

// One of filledOf events has a filling that makes it large: it goes around the script.
const (
	filledOf     = 40
	leastFilling = 40_000
	mostFilling  = 200_000
)

// attrFilling is the size of an event's filling in bytes.
const attrFilling = "filling"

// fill is the filling of the event of a call or an input. It is empty for most of them.
func fill(id string) string {
	if h := hash(id); h%filledOf == 3 {
		return strings.Repeat("f", leastFilling+int(h/filledOf)%(mostFilling-leastFilling))
	}
	return ""
}

func declareFilling(attrs message.Attributes, payload Payload) {
	if payload.Filling != "" {
		attrs[attrFilling] = strconv.Itoa(len(payload.Filling))
	}
}

// filling returns the size of the filling that an event declares, and the size that it has. Both are 0 for most events.
func filling(event *message.RawMessage) (declared, has int) {
	text, _ := event.Attributes[attrFilling].(string)
	if declared, _ = strconv.Atoi(text); declared == 0 {
		return 0, 0
	}
	var payload Payload
	if json.Unmarshal(event.Data, &payload) != nil {
		return declared, 0
	}
	return declared, len(payload.Filling)
}
