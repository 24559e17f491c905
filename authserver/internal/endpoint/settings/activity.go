package settings

import (
	"cmp"
	_ "embed"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
)

//go:embed operations.json
var operationsJSON []byte

// operationWords returns what each operation is to people, by its operationId or the name of the tool.
var operationWords = ui.Words[string]("operations.json", operationsJSON)

// mostUsage is the number of rows of usage that a page reads: 30 days with up to 100 operations.
const mostUsage = usage.Shown * 100

// An activity is what a connection or a token did in the last 30 days, and from where.
type activity struct {
	Days       []activeDay       // all of them, the earliest first
	Operations []activeOperation // those with the most requests first
	Networks   []usage.Network

	counts
}

// counts are numbers of requests, of those of them that were refused, and of records that they gave or changed.
type counts struct{ Requests, Refused, Records int }

func (c *counts) add(row usage.Row) {
	c.Requests += int(row.Requests)
	c.Refused += int(row.Refused)
	c.Records += int(row.Records)
}

// An activeDay is what it did on one day in UTC, with its bar in the plot.
type activeDay struct {
	Day time.Time
	counts
	X                      int // left edge of the bar
	Height, Top            int // of the bar
	RefusedHeight, BaseTop int // of its lower part, for the refused requests
}

// An activeOperation is what it did by one operation.
type activeOperation struct {
	Name    string // in the API
	Words   string
	Service string // the service that checked the credential, or ""
	counts
}

// Size of the plot, in the units of its view box: dayWidth for each of the days.
const (
	plotHeight = 160
	dayWidth   = 20
)

// Width and Height return the size of the plot, and First and Last its days.
func (activity) Width() int         { return usage.Shown * dayWidth }
func (activity) Height() int        { return plotHeight }
func (a activity) First() activeDay { return a.Days[0] }
func (a activity) Last() activeDay  { return a.Days[len(a.Days)-1] }

// Most returns the day with the most requests.
func (a activity) Most() activeDay {
	return slices.MaxFunc(a.Days, func(x, y activeDay) int { return cmp.Compare(x.Requests, y.Requests) })
}

// Active returns the days with requests, the latest first.
func (a activity) Active() (days []activeDay) {
	for _, d := range slices.Backward(a.Days) {
		if d.Requests > 0 {
			days = append(days, d)
		}
	}
	return days
}

// activity reads what a credential of the actor's workspace did. The caller has checked that the actor may see it. Like
// read, it keeps the first error for show.
func (r *request) activity(by audit.Actor, credential uuid.UUID) activity {
	first := usage.FirstShown(r.Now())
	last := first.AddDate(0, 0, usage.Shown-1)
	rows, err := r.Usage.List(r.ctx(), by, usage.Filter{
		CredentialID: &credential,
		From:         first,
		To:           last,
		Limit:        mostUsage,
	})
	out := activityOf(rows, first)
	if err == nil {
		out.Networks, err = r.Store.Networks(r.ctx(), by.WorkspaceID, credential)
	}
	r.failed = cmp.Or(r.failed, err)
	return out
}

// activityOf sums up rows of the days from first.
func activityOf(rows []usage.Row, first time.Time) (out activity) {
	for i := range usage.Shown {
		out.Days = append(out.Days, activeDay{Day: first.AddDate(0, 0, i), X: i * dayWidth})
	}
	for _, row := range rows {
		out.counts.add(row)
		if i := int(row.Day.Sub(first) / (24 * time.Hour)); i >= 0 && i < len(out.Days) {
			out.Days[i].counts.add(row)
		}
		same := func(o activeOperation) bool { return o.Name == row.Operation && o.Service == row.Service }
		at := slices.IndexFunc(out.Operations, same)
		if at < 0 {
			at = len(out.Operations)
			words := cmp.Or(operationWords()[row.Operation], row.Operation)
			out.Operations = append(out.Operations,
				activeOperation{Name: row.Operation, Words: words, Service: row.Service})
		}
		out.Operations[at].counts.add(row)
	}
	slices.SortStableFunc(out.Operations, func(a, b activeOperation) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Words, b.Words))
	})
	most := out.Most().Requests
	for i := range out.Days {
		d := &out.Days[i]
		d.Height, d.RefusedHeight = barHeight(d.Requests, most), barHeight(d.Refused, most)
		d.Top, d.BaseTop = plotHeight-d.Height, plotHeight-d.RefusedHeight
	}
	return out
}

// barHeight returns the height of the bar of n requests, of which a day has at most this number. One is seen, too.
func barHeight(n, most int) int {
	if n == 0 {
		return 0
	}
	return max(3, n*plotHeight/most)
}
