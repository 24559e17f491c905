// Package listing serves the lists of a workspace a page at a time, for the account endpoints (spec 2.4; contract,
// section 6a).
//
// The lists are short: a workspace has at most thousands of members, applications or open invitations. So the store
// returns a list as a whole, and this package orders it and cuts out the page.
package listing

import (
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/listquery"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/web"
)

// Cursors seals and opens the cursors that continue a list. It is safe for concurrent use.
type Cursors struct{ box *seal.Box }

// NewCursors derives the cursor key from the service's keys.
func NewCursors(keys seal.Keys) (*Cursors, error) {
	box, err := seal.NewBox(keys, "account cursor")
	if err != nil {
		return nil, err
	}
	return &Cursors{box}, nil
}

// A List describes a list of records of type T, which are shown as R.
type List[T, R any] struct {
	// Name identifies the list in its cursors. Each list has its own.
	Name string
	// Omitted are members of R that lists never have.
	Omitted []string
	// Key returns the position of a record, which no other has. The list is in the order of the keys, byte by byte.
	Key func(T) string
	// Show returns the records of a page in their API form.
	Show func(page []T) ([]R, error)
}

// Each returns a Show that converts each record separately.
func Each[T, R any](show func(T) R) func([]T) ([]R, error) {
	return func(page []T) ([]R, error) {
		shown := make([]R, 0, len(page))
		for _, one := range page {
			shown = append(shown, show(one))
		}
		return shown, nil
	}
}

type meta struct {
	Count      int    `json:"count"`
	NextCursor string `json:"nextCursor,omitempty"`
}

// maxCursor is the length in characters above which a cursor is not opened.
const maxCursor = 2048

// Write writes the page of all that the query selects. Its error is an *apierr.Error.
func (l List[T, R]) Write(w http.ResponseWriter, r *http.Request, c *Cursors, workspaceID uuid.UUID, all []T) error {
	values, problems := listquery.Parameters(r.URL.RawQuery, "limit", "cursor", "fields")
	limit := listquery.Limit(values, problems)
	known := slices.DeleteFunc(listquery.FieldsOf[R](), func(name string) bool {
		return slices.Contains(l.Omitted, name)
	})
	fields := listquery.Fields(values, problems, known)
	name := l.Name + " of " + workspaceID.String() + "\x00"
	after, continues := "", false
	if text, given := values["cursor"]; given {
		if after, continues = c.open(text, name); !continues {
			problems["cursor"] = "Must be a meta.nextCursor of the same list."
		}
	}
	if err := refusal(problems); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(l.Key(a), l.Key(b)) })
	if continues {
		all = slices.DeleteFunc(all, func(one T) bool { return l.Key(one) <= after })
	}
	page := all[:min(limit, len(all))]
	shown, err := l.Show(page)
	if err != nil {
		return err
	}
	data, err := encode(shown, fields)
	if err != nil {
		return err
	}
	m := meta{Count: len(data)}
	if len(all) > len(page) {
		m.NextCursor = c.box.Seal([]byte(name + l.Key(page[len(page)-1])))
	}
	web.JSON(w, http.StatusOK, map[string]any{"data": data, "meta": m})
	return nil
}

// open returns the key that the cursor of the list holds.
func (c *Cursors) open(text, list string) (key string, ok bool) {
	if len(text) > maxCursor {
		return "", false
	}
	content, err := c.box.Open(text)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(content), list)
}

// refusal names one of the parameters that are not valid. The flat shape has no fields.
func refusal(problems map[string]string) error {
	for _, name := range []string{"limit", "cursor", "fields"} {
		if message, invalid := problems[name]; invalid {
			return apierr.New(apierr.Invalid, name+": "+message)
		}
	}
	return nil
}
