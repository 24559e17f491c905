package records

import (
	"cmp"
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/listpage"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// A List serves one list of records of type T, newest first, a page at a time.
type List[T any] struct {
	Gate     *gate.Gate
	Need     perm.Permission
	Cursors  *list.Cursors
	Refusals Refusals
	// Name identifies the list in its cursors. Each list has its own.
	Name string
	// Owner returns the id that the path names, of the record to which the list belongs. If nil, the list belongs to
	// the workspace.
	Owner func(r *http.Request) (uuid.UUID, error)
	// Find checks that the workspace has the record of that id. It is nil if Owner is.
	Find func(ctx context.Context, workspaceID, id uuid.UUID) error
	// Fields are the members of a record in its API form, of which the parameter fields selects some.
	Fields []string
	// Filters are the query parameters other than cursor, limit and fields.
	Filters list.Filters
	// Read passes the records of a page of the workspace's list to take until it returns false. ReadOf does it for the
	// list of an owner, and is used instead of Read if Owner is not nil.
	Read   func(ctx context.Context, workspaceID uuid.UUID, r list.Range, take func(T) bool) (list.End, error)
	ReadOf func(ctx context.Context, workspaceID, owner uuid.UUID, r list.Range, take func(T) bool) (list.End, error)
	// Record returns the record in its API form, and Position its position in the list.
	Record   func(T) any
	Position func(T) list.Position
}

// Handler handles GET.
func (l List[T]) Handler() http.Handler {
	return l.Gate.Guard(l.Need, func(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
		known := append([]string{"cursor", "limit", "fields"}, l.Filters.Names()...)
		if err := strictjson.UnknownParameters(r.URL.RawQuery, known...); err != nil {
			return gate.Plan{}, err
		}
		owner, notFound := workspaceID, error(nil)
		if l.Owner != nil {
			owner, notFound = l.Owner(r)
		}
		name := l.Name + " of " + owner.String()
		wanted, err := list.ReadRange(r.URL.RawQuery, name, l.Cursors, l.Fields, l.Filters)
		if err != nil {
			return gate.Plan{}, l.Refusals.Of(err)
		}
		return gate.Plan{Serve: func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
			if notFound != nil {
				return l.Refusals.Of(notFound)
			}
			return l.Refusals.Of(l.serve(w, r, caller, owner, wanted))
		}}, nil
	})
}

func (l List[T]) serve(
	w http.ResponseWriter,
	r *http.Request,
	caller gate.Caller,
	owner uuid.UUID,
	wanted list.Range,
) error {
	if l.Find != nil {
		if err := l.Find(r.Context(), caller.WorkspaceID, owner); err != nil {
			return err
		}
	}
	page := listpage.NewJSON(l.Record).Only(wanted.Fields).Reserving(gate.ByteReserver(r.Context()))
	var end list.End
	err := gate.ReadInTurn(r.Context(), func() (err error) {
		if l.Owner == nil {
			end, err = l.Read(r.Context(), caller.WorkspaceID, wanted, page.Take)
		} else {
			end, err = l.ReadOf(r.Context(), caller.WorkspaceID, owner, wanted, page.Take)
		}
		return err
	})
	if err := cmp.Or(err, page.Err()); err != nil {
		return err
	}
	next := ""
	if end.More {
		last := l.Position(page.Last())
		last.Until = end.Until
		next = l.Cursors.Seal(wanted.List, last)
	}
	page.Write(w, next)
	return nil
}
