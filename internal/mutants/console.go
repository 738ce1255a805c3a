package main

// consoleMutants break what the console promises to who clicks.
var consoleMutants = []Mutant{
	{
		Name: "console-does-not-escape", File: "admin/console.go", Package: "admin", Test: "^TestConsoleEscapes$",
		Old: `"html/template"`, New: `"text/template"`,
		Why: "whoever can have an event parked runs scripts in the operator's name",
	},
	{
		Name: "console-confirm-skipped", File: "admin/console_preview.go", Package: "admin", Test: "^TestConsoleRearm$/^redis$",
		Old: `return p.count > 0 && form.Get("confirm") == p.sentence()`, New: `return p.count > 0`,
		Why: "something else is done than was shown",
	},
	{
		Name: "console-more-than-shown", File: "admin/console_preview.go", Package: "admin", Test: "^TestConsoleCount$",
		Old: `	p.opts.Limit = p.count`, New: ``,
		Why: "who has confirmed five re-arms thousands",
	},
	{
		Name: "console-discards-unasked", File: "admin/console_preview.go", Package: "admin", Test: "^TestConsoleSelection$",
		Old: ` || c.r.PostForm.Get("sure") != "yes"`, New: ``,
		Why: "one click, and events are gone for good",
	},
	{
		Name: "console-shows-bodies", File: "admin/console_event.go", Package: "admin", Test: "^TestConsoleHidesBodies$",
		Old: `if c.query.Get("body") == "1" {`, New: `if true {`,
		Why: "customers' data is on every screen",
	},
	{
		Name: "console-redaction-skipped", File: "admin/console_event.go", Package: "admin", Test: "^TestConsoleHidesBodies$",
		Old: `shown := u.h.payload(e)`, New: `shown := Payload{Data: e.Body}`,
		Why: "what was blackened is read all the same",
	},
	{
		Name: "console-leads-away", File: "admin/console_theme.go", Package: "admin", Test: "^TestConsoleTheme$",
		Old: `|| !inner.MatchString(address.Path)`, New: ``,
		Why: "a form of the console leads out of it",
	},
	{
		Name: "console-offers-what-is-denied", File: "admin/console.go", Package: "admin", Test: "^TestConsoleOffers$",
		Old: `func (v *view) CanPurge() bool { return v.call.who.May >= MayPurge }`, New: `func (v *view) CanPurge() bool { return true }`,
		Why: "buttons that answer with a refusal",
	},
}
