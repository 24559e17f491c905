package connectors

import (
	"strconv"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
)

// A connector is one connector of a workspace, with its latest attempt to connect.
type connector struct {
	Name     string
	Platform string
	Host     string // host of its callback or its metadata document
	Deleted  bool
	Latest   *connectionAttempt // nil if there is none
	Log      string             // path of the log of its attempts
}

// A connectionAttempt is one attempt to connect.
type connectionAttempt struct {
	ID        string
	At        time.Time
	Person    string // "" if unknown
	Steps     []step
	Outcome   string // waiting, working, refused, denied, ended: the style
	Word      string // the same in words
	Reason    string
	RequestID string
}

// A step is one step of an attempt.
type step struct {
	Name  string
	Taken bool
}

// connectorsShown is how many connectors a page shows.
const connectorsShown = 25

// A pager has the paths of the pages before and after a page of connectors, or "".
type pager struct{ Previous, Next string }

// connectorPage returns the page of the workspace's connectors that the URL selects.
func (h *Handler) connectorPage(v *settings.Request, here settings.Scope) ([]connector, pager, error) {
	number, err := strconv.Atoi(v.R.URL.Query().Get("page"))
	if err != nil || number < 1 || number > maxPage {
		number = 1
	}
	offset := (number - 1) * connectorsShown
	found, err := h.policies.Connectors(v.R.Context(), here.Workspace.ID, offset, connectorsShown+1)
	if err != nil {
		return nil, pager{}, err
	}
	path := func(number int) string {
		return here.Path(Section) + "&page=" + strconv.Itoa(number) + "#log"
	}
	var pages pager
	if number > 1 {
		pages.Previous = path(number - 1)
	}
	if len(found) > connectorsShown {
		found, pages.Next = found[:connectorsShown], path(number+1)
	}
	out := make([]connector, len(found))
	for i, c := range found {
		out[i] = connector{
			Name:     c.Name,
			Platform: workspace.PlatformOf(c.Platform).Name(),
			Host:     hostOf(c),
			Deleted:  c.Deleted,
			Log:      here.Path(logSection) + "&client=" + c.ID.String(),
		}
		if c.Latest != nil {
			latest := attemptView(*c.Latest)
			out[i].Latest = &latest
		}
	}
	return out, pages, nil
}

// maxPage keeps the offset of a page within an integer of the store.
const maxPage = 1_000_000

// hostOf returns the host of a connector's metadata document or its callback, or "".
func hostOf(c connectionlog.Connector) string {
	host := (client.Client{Address: c.Address}).Domain()
	if host == "" && len(c.Redirects) > 0 {
		host = consent.Callback{URI: c.Redirects[0]}.Host()
	}
	return host
}

var stepNames = [...]string{
	connectionlog.Requested: "Requested",
	connectionlog.Consented: "Approved",
	connectionlog.Exchanged: "Code exchanged",
	connectionlog.Called:    "First call",
	connectionlog.Refreshed: "Refreshed",
}

var outcomeWords = map[connectionlog.Outcome]string{
	connectionlog.Waiting: "Waiting",
	connectionlog.Working: "Connected",
	connectionlog.Refused: "Refused",
	connectionlog.Denied:  "Denied",
	connectionlog.Ended:   "Ended",
}

func attemptView(w connectionlog.Attempt) connectionAttempt {
	out := connectionAttempt{
		ID:        w.ID.String(),
		At:        w.At,
		Person:    w.Person,
		Outcome:   string(w.Outcome),
		Word:      outcomeWords[w.Outcome],
		Reason:    w.Reason,
		RequestID: w.RequestID,
	}
	if w.Orphan {
		out.Reason = "This token request does not belong to a known approval. " + w.Reason
		return out
	}
	for i, taken := range w.Taken {
		out.Steps = append(out.Steps, step{Name: stepNames[i], Taken: taken})
	}
	return out
}
