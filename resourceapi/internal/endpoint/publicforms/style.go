package publicforms

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/shared/brand"

	"github.com/almonerhq/almoner/resourceapi/internal/formtext"
)

// A pageStyle is the style that the website around the page requests in the query. Values that are not valid are
// ignored, since a wrong colour must not make the page fail.
type pageStyle struct {
	Framed bool
	Theme  string        // light or dark; empty to follow the system
	accent *brand.Colour // nil for the colour of the deployment
	lang   string        // empty for the language of the form
}

// styleOf reads the style from the query. By default, a page in a frame is light, as most websites are, and other pages
// follow the system.
func styleOf(r *http.Request) pageStyle {
	query := r.URL.Query()
	s := pageStyle{Framed: query.Get("frame") == "1"}
	switch theme := query.Get("theme"); theme {
	case "light", "dark":
		s.Theme = theme
	case "auto":
	default:
		if s.Framed {
			s.Theme = "light"
		}
	}
	if colour, err := brand.Parse(query.Get("accent")); err == nil {
		s.accent = &colour
	}
	if lang := query.Get("lang"); formtext.Known(lang) {
		s.lang = lang
	}
	return s
}

// language returns the language that the website requests or else the language of the form.
func (s pageStyle) language(ofForm string) *formtext.Language {
	return formtext.Of(cmp.Or(s.lang, ofForm))
}

// query returns the query that requests this style.
func (s pageStyle) query() url.Values {
	query := url.Values{}
	if s.Framed {
		query.Set("frame", "1")
	}
	switch {
	case s.Theme == "" && s.Framed:
		query.Set("theme", "auto")
	case s.Theme == "dark", s.Theme == "light" && !s.Framed:
		query.Set("theme", s.Theme)
	}
	if s.accent != nil {
		query.Set("accent", s.accent.String()[1:])
	}
	if s.lang != "" {
		query.Set("lang", s.lang)
	}
	return query
}

// action returns the path of the form's page in this style.
func (s pageStyle) action(embedKey string) string {
	path := FormsPath + "/" + embedKey + "/embed"
	if query := s.query().Encode(); query != "" {
		return path + "?" + query
	}
	return path
}

// ColorScheme returns the content of the page's meta element color-scheme.
func (s pageStyle) ColorScheme() string {
	if s.Theme == "" {
		return "light dark"
	}
	return s.Theme
}
