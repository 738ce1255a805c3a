package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/luatx/luatx/admin/internal/guard"
)

// themes are those of the switch, in its order; auto is what the reader's system says.
var themes = map[string]struct{ next, name string }{
	"auto":  {"dark", "Auto"},
	"dark":  {"light", "Dark"},
	"light": {"auto", "Light"},
}

// themeCookie keeps the switch.
const themeCookie = "luatx_theme"

// Theme is what the reader has chosen.
func (v *view) Theme() string {
	if cookie, err := v.call.R.Cookie(themeCookie); err == nil {
		if _, known := themes[cookie.Value]; known {
			return cookie.Value
		}
	}
	return "auto"
}

// OtherTheme is what the switch leads to.
func (v *view) OtherTheme() string { return themes[v.Theme()].next }

// ThemeName is the chosen one's.
func (v *view) ThemeName() string { return "Theme: " + strings.ToLower(themes[v.Theme()].name) }

// ThemeLabel says what the switch does; it begins with what is to be read on it.
func (v *view) ThemeLabel() string { return v.ThemeName() + "; change it to " + v.OtherTheme() }

// theme keeps the choice in the reader's browser, and nowhere else.
func (u *ui) theme(c *guard.Call) error {
	chosen := c.R.PostForm.Get("theme")
	if _, known := themes[chosen]; !known {
		return &guard.Problem{Status: http.StatusBadRequest, Title: "There is no such theme"}
	}
	http.SetCookie(c.W, &http.Cookie{Name: themeCookie, Value: chosen, MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	c.Redirect(within(c.R.PostForm.Get("to")))
	return nil
}

// inner is the path of a page within the console.
var inner = regexp.MustCompile(`^([a-z-]+(/[A-Za-z0-9]+)?)?$`)

// within is an address that stays within the console: the overview where it is another.
func within(to string) string {
	address, err := url.Parse(to)
	if err != nil || address.Scheme != "" || address.Host != "" || !inner.MatchString(address.Path) {
		return ""
	}
	return (&url.URL{Path: address.Path, RawQuery: address.RawQuery}).String()
}
