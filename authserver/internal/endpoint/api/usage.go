package api

import (
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	contract "github.com/almonerhq/almoner/shared/contract/usage"
	"github.com/almonerhq/almoner/shared/rest"
)

// usageMark returns the position of a row in the list.
func usageMark(r usage.Row) string {
	return strings.Join([]string{
		r.Day.Format(time.DateOnly), r.CredentialID.String(), r.Operation, r.ServiceID.String(),
	}, " ")
}

// parseUsageMark returns the row after which a page begins, or nil. It comes from a cursor, which is authentic.
func parseUsageMark(after string) *usage.Row {
	parts := strings.Split(after, " ")
	if len(parts) != 4 {
		return nil
	}
	day, _ := time.Parse(time.DateOnly, parts[0])
	return &usage.Row{
		Day:          day,
		CredentialID: uuid.MustParse(parts[1]),
		Operation:    parts[2],
		ServiceID:    uuid.MustParse(parts[3]),
	}
}

// listUsage lists what the credentials that the caller may see did, the latest day first (contract, section 5b).
func (r *request) listUsage() error {
	selected := filters{request: r, list: "usage"}
	filter := usage.Filter{CredentialID: selected.id("credentialId")}
	filter.From, filter.To = selected.days()
	if selected.err != nil {
		return selected.err
	}
	rows := rest.Collection[usage.Row, contract.Record]{
		Name: selected.list,
		Key:  usageMark,
		Read: func(after string, limit int) ([]usage.Row, error) {
			filter.After, filter.Limit = parseUsageMark(after), limit
			return r.Usage.List(r.http.Context(), r.by, filter)
		},
		Show: rest.Each(usage.Row.Record),
	}
	return rows.Write(r.w, r.http, r.Cursors, r.by.WorkspaceID, nil)
}

// days returns the days of the parameters from and to.
func (f *filters) days() (from, to time.Time) {
	days, err := contract.ReadDays(f.http.URL.RawQuery, f.Now())
	if problems, invalid := errors.AsType[rest.Problems](err); invalid {
		f.err = apierr.New(apierr.Invalid, problems.Lines()[0]) // the flat shape has no fields
	}
	query := f.http.URL.Query()
	f.list += " from=" + query.Get("from") + " to=" + query.Get("to") // as sent: the defaults change at midnight
	return days.From, days.To
}
