package ui

import (
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

func (p *Pages) functions() template.FuncMap {
	return template.FuncMap{
		"asset":    p.asset,
		"brand":    func() string { return p.brand.Name() },
		"day":      dayText,
		"moment":   momentText,
		"ago":      agoElement,
		"agoexact": agoExact,
		"localday": localDay,
		"local":    localMoment,
		"brief":    func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05") },
		"machine":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"initials": initials,
		"address":  addressParts,
		"describe": describe,
		"byrisk":   byRisk,
		"field":    func(id, label, value string) copyField { return copyField{id, label, value} },
		"boxes":    boxes,
		"askat":    func(i int, a Ask) askForm { return askForm{a, "ask-" + strconv.Itoa(i)} },
	}
}

// initials returns the one or two letters that represent a name in a tile.
func initials(name string) string {
	var out []rune
	for _, word := range strings.Fields(name) {
		if first := []rune(word)[0]; unicode.IsLetter(first) || unicode.IsDigit(first) {
			out = append(out, unicode.ToUpper(first))
		}
	}
	if len(out) > 2 {
		out = out[:2]
	}
	return string(out)
}

// addressParts returns what is before and after the @ of an e-mail address: the address may be broken there.
func addressParts(email string) []string { return strings.SplitN(email, "@", 2) }

// A Permission is one permission as a page shows it.
type Permission struct {
	ID       string
	Title    string
	Sentence string
	Risk     string // low, sensitive, high: the style
	RiskWord string // the same in words, because colour alone must not carry the meaning
	Reads    bool   // read-only access includes it
}

// describe returns the titles and descriptions of permissions. A permission that is no longer known is shown by its
// identifier.
func describe(set perm.Set) []Permission {
	out := make([]Permission, 0, len(set))
	for _, id := range set {
		entry, known := perm.Describe(id)
		if !known {
			out = append(out, Permission{
				ID:       string(id),
				Title:    string(id),
				Sentence: "This permission is no longer in use.",
				Risk:     "low",
			})
			continue
		}
		out = append(out, Permission{
			ID:       string(id),
			Title:    entry.Title,
			Sentence: entry.Sentence,
			Risk:     entry.Risk.String(),
			RiskWord: riskWord(entry.Risk),
			Reads:    id.Reads(),
		})
	}
	return out
}

// byRisk returns what describe returns, grouped by risk. The risk of the first permission comes first.
func byRisk(set perm.Set) [][]Permission {
	var out [][]Permission
	for _, p := range describe(set) {
		same := slices.IndexFunc(out, func(of []Permission) bool { return of[0].RiskWord == p.RiskWord })
		if same < 0 {
			out = append(out, []Permission{p})
			continue
		}
		out[same] = append(out[same], p)
	}
	return out
}

func riskWord(risk perm.Risk) string {
	switch risk {
	case perm.High:
		return "Makes changes"
	case perm.Sensitive:
		return "Personal data"
	}
	return "Read only"
}

// An askForm is the form of an Ask whose button is inside another form. Form is its id.
type askForm struct {
	Ask
	Form string
}

// A copyField is a value that the user can select and copy.
type copyField struct{ ID, Label, Value string }

// A box is a checkbox of a permission.
type box struct {
	Permission
	Chosen bool
}

func boxes(held, chosen perm.Set) []box {
	var out []box
	for _, p := range describe(held) {
		out = append(out, box{p, chosen.Has(perm.Permission(p.ID))})
	}
	return out
}
