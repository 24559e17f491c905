package gate

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/usage"
	"github.com/almonerhq/almoner/shared/rest"
)

// UsageStore reads what credentials did.
type UsageStore interface {
	// Usage returns up to limit rows of one credential, the latest day first: those after a row, or the first ones
	// after the zero Row. Those of introspections by several services are added up.
	Usage(
		ctx context.Context, workspaceID, credentialID uuid.UUID, days usage.Days, after usage.Row, limit int,
	) ([]usage.Row, error)
}

// MyUsage returns the handler of GET /v1/me/usage by path and method: what the caller's own credential did (contract,
// section 5b). Like Me, it needs a valid credential and nothing else.
func (g *Gate) MyUsage(store UsageStore, cursors *rest.Cursors) map[string]map[string]http.Handler {
	return map[string]map[string]http.Handler{"/v1/me/usage": {"GET": http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			err := g.serveCredential(w, r, Plan{}, func(_ presented, s standing.Standing) error {
				return rest.Refusals(nil).Of(listUsage(w, r, s, store, cursors))
			})
			if err != nil {
				g.Refuse(w, r, err)
			}
		},
	)}}
}

// listUsage writes a page of the rows of the credential.
func listUsage(
	w http.ResponseWriter, r *http.Request, s standing.Standing, store UsageStore, cursors *rest.Cursors,
) error {
	raw := r.URL.RawQuery
	if err := rest.UnknownParameters(raw, "from", "to", "limit", "cursor", "fields"); err != nil {
		return err
	}
	days, err := usage.ReadDays(raw, time.Now())
	if err != nil {
		return err
	}
	query := r.URL.Query()
	rows := rest.Collection[usage.Row, usage.Record]{
		// As sent: the default days change at midnight.
		Name:    "usage of " + s.CredentialID.String() + " from=" + query.Get("from") + " to=" + query.Get("to"),
		Omitted: []string{"service"},
		Key:     func(row usage.Row) string { return row.Day.Format(time.DateOnly) + " " + row.Operation },
		Read: func(text string, limit int) ([]usage.Row, error) {
			var after usage.Row
			day, operation, continues := strings.Cut(text, " ")
			if continues { // from a cursor, which is authentic
				after.Day, _ = time.Parse(time.DateOnly, day)
				after.Operation = operation
			}
			found, err := store.Usage(r.Context(), s.CredentialWorkspace, s.CredentialID, days, after, limit)
			for i := range found {
				found[i].CredentialID = s.CredentialID
				found[i].Kind = usage.Kind(s.Kind == standing.PersonalAccessToken)
			}
			return found, err
		},
		Show: rest.Each(usage.Row.Record),
	}
	return rows.Write(w, r, cursors, s.CredentialWorkspace, nil)
}
