package rest

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
)

// A Collection describes a list of records of type T, which are shown as R. It is short, as a workspace has at most
// thousands of members, applications or open invitations. So the store returns it as a whole, and a page is cut out
// of it.
type Collection[T, R any] struct {
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

// NewestFirst returns the key of a record for a list that has the newest records first, ties by id.
func NewestFirst(created time.Time, id uuid.UUID) string {
	return fmt.Sprintf("%019d %s", math.MaxInt64-created.UnixMicro(), id)
}

// maxCursor is the length in characters above which a cursor is not opened.
const maxCursor = 2048

// Write writes the page of all that the query selects. Its error is an *apierr.Error.
func (l Collection[T, R]) Write(
	w http.ResponseWriter, r *http.Request, c *Cursors, workspaceID uuid.UUID, all []T,
) error {
	p := ReadParameters(r.URL.RawQuery, "limit", "cursor", "fields")
	limit := p.Limit()
	fields := p.Fields(slices.DeleteFunc(FieldsOf[R](), func(name string) bool {
		return slices.Contains(l.Omitted, name)
	}))
	name := l.Name + " of " + workspaceID.String() + "\x00"
	text, continues := p.Text("cursor")
	after, opened := c.openKey(text, name)
	if continues && !opened {
		p.Problems["cursor"] = otherCursor
	}
	for _, name := range []string{"limit", "cursor", "fields"} {
		if message, invalid := p.Problems[name]; invalid {
			return apierr.New(apierr.Invalid, name+": "+message) // the flat shape has no fields
		}
	}
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(l.Key(a), l.Key(b)) })
	if continues {
		all = slices.DeleteFunc(all, func(one T) bool { return l.Key(one) <= after })
	}
	read := all[:min(limit, len(all))]
	shown, err := l.Show(read)
	if err != nil {
		return err
	}
	page := NewJSONPage(func(one R) R { return one }).Only(fields)
	for i, one := range shown {
		if !page.Take(one) {
			read = read[:i]
			break
		}
	}
	if err := page.Err(); err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	next := ""
	if len(all) > len(read) {
		next = c.Seal([]byte(name + l.Key(read[len(read)-1])))
	}
	page.Write(w, next)
	return nil
}

// openKey returns the key that the cursor of the list holds.
func (c *Cursors) openKey(text, list string) (key string, ok bool) {
	if len(text) > maxCursor {
		return "", false
	}
	content, err := c.Open(text)
	if err != nil {
		return "", false
	}
	return strings.CutPrefix(string(content), list)
}
