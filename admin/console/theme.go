package console

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/luatx/luatx/admin/internal/guard"
)

// themes lists the themes of the switch; auto is the theme of the reader's system.
var themes = map[string]struct{ next, name string }{
	"auto":  {"dark", "Auto"},
	"dark":  {"light", "Dark"},
	"light": {"auto", "Light"},
}

// themeCookie is the cookie with the chosen theme.
const themeCookie = "luatx_theme"

// Theme returns the chosen theme.
func (v *view) Theme() string {
	if cookie, err := v.call.R.Cookie(themeCookie); err == nil {
		if _, known := themes[cookie.Value]; known {
			return cookie.Value
		}
	}
	return "auto"
}

// OtherTheme returns the next theme of the switch.
func (v *view) OtherTheme() string { return themes[v.Theme()].next }

// ThemeName returns the name of the chosen theme.
func (v *view) ThemeName() string { return "Theme: " + strings.ToLower(themes[v.Theme()].name) }

// ThemeLabel describes the switch. It begins with the visible text.
func (v *view) ThemeLabel() string { return v.ThemeName() + "; change it to " + v.OtherTheme() }

// theme stores the choice in a cookie of the reader's browser.
func (u *ui) theme(c *guard.Call) error {
	chosen := c.R.PostForm.Get("theme")
	if _, known := themes[chosen]; !known {
		return &guard.Problem{Status: http.StatusBadRequest, Title: "Unknown theme", Detail: "theme must be auto, dark or light."}
	}
	http.SetCookie(c.W, &http.Cookie{Name: themeCookie, Value: chosen, MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	c.Redirect(within(c.R.PostForm.Get("to")))
	return nil
}

// inner matches the path of a page within the console.
var inner = regexp.MustCompile(`^([a-z-]+(/[A-Za-z0-9]+)?)?$`)

// within returns an address if it is within the console, and that of the overview otherwise.
func within(to string) string {
	address, err := url.Parse(to)
	if err != nil || address.Scheme != "" || address.Host != "" || !inner.MatchString(address.Path) {
		return ""
	}
	return (&url.URL{Path: address.Path, RawQuery: address.RawQuery}).String()
}
