package httpapi

import (
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/luatx/luatx/admin/internal/desk"
	"github.com/luatx/luatx/admin/internal/guard"
	"github.com/luatx/luatx/internal/acts"
	"github.com/luatx/luatx/outbox"
)

// operations replies with the stored operations.
func (h *Handler) operations(c *guard.Call) error {
	all := []operationJSON{}
	for _, o := range h.desk.Operations.List() {
		all = append(all, newOperation(o))
	}
	return c.Answer(http.StatusOK, map[string]any{"operations": all})
}

// operation replies with one operation.
func (h *Handler) operation(c *guard.Call) error {
	o, ok := h.desk.Operations.Get(c.R.PathValue("id"))
	if !ok {
		return &guard.Problem{Status: http.StatusNotFound, Detail: "no such operation; a process remembers only its own last " + strconv.Itoa(desk.KeptOperations) + " operations"}
	}
	return c.Answer(http.StatusOK, newOperation(o))
}

// stop ends an operation early.
func (h *Handler) stop(c *guard.Call, _ struct{}) error {
	if err := h.desk.Stop(c.Who, c.R.PathValue("id")); err != nil {
		return err
	}
	return h.operation(c)
}

// begun replies with a running operation.
func begun(c *guard.Call, o desk.Operation, err error) error {
	if err != nil {
		return err
	}
	c.W.Header().Set("Location", c.Base()+"api/operations/"+o.ID)
	return c.Answer(http.StatusAccepted, newOperation(o))
}

type operationJSON struct {
	ID       string                 `json:"id"`
	Kind     string                 `json:"kind"`
	Who      string                 `json:"who"`
	Why      string                 `json:"why"`
	Begun    time.Time              `json:"begun"`
	Ended    time.Time              `json:"ended,omitzero"`
	Running  bool                   `json:"running"`
	Stopped  bool                   `json:"stopped"`
	Rearm    *rearmJSON             `json:"rearm,omitempty"`
	Dead     *deadResultJSON        `json:"dead,omitempty"`
	Matched  int                    `json:"matched"`
	Done     int                    `json:"done"`
	Skipped  map[outbox.Outcome]int `json:"skipped"`
	Findings []acts.Finding         `json:"findings,omitempty"`
	Error    string                 `json:"error,omitempty"`
}

func newOperation(o desk.Operation) operationJSON {
	j := operationJSON{
		ID: o.ID, Kind: o.Kind, Who: o.Who, Why: o.Why, Begun: o.Begun, Ended: o.Ended, Running: o.Running, Stopped: o.Stopped,
		Matched: o.Matched, Done: o.Done, Skipped: o.Skipped, Error: o.Error,
	}
	if o.Rearm != nil {
		result := newRearm(*o.Rearm)
		j.Rearm = &result
	}
	if o.Dead != nil {
		result := newDeadResult(*o.Dead)
		j.Dead = &result
	}
	for _, f := range o.Findings {
		j.Findings = append(j.Findings, acts.NewFinding(f))
	}
	return j
}

type rearmJSON struct {
	Operation   string         `json:"operation"` // its id in the audit, when it has ended
	Matched     int            `json:"matched"`
	Rearmed     int            `json:"rearmed"`
	Skipped     map[string]int `json:"skipped"`
	Classes     map[string]int `json:"classes"`
	Canary      canaryJSON     `json:"canary"`
	ParkedAgain int            `json:"parked_again"`
	Stopped     string         `json:"stopped"`
	Class       string         `json:"class"`
}

type canaryJSON struct {
	Sent        int `json:"sent"`
	ParkedAgain int `json:"parked_again"`
	Trying      int `json:"trying"`
}

func newRearm(r outbox.RearmResult) rearmJSON {
	j := rearmJSON{
		r.Operation, r.Matched, r.Rearmed, map[string]int{}, maps.Clone(r.Classes), canaryJSON(r.Canary), r.ParkedAgain, string(r.Stopped), r.Class,
	}
	for outcome, n := range r.Skipped {
		j.Skipped[string(outcome)] = n
	}
	return j
}
