package settings

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/inflight"
)

// Limits of the searches and exports of logs in one process. They use the connections to Postgres that refreshes use.
const (
	turnsPerUser = 2 // searches and exports of a user
	turnsOfReads = 4 // reads of pages by all users
	turnWait     = 3 * time.Second
	maxWaiting   = 8   // searches and exports of a user, running or waiting
	maxReads     = 256 // of all users, running or waiting
)

// turns limits concurrent searches and exports of logs. An export counts towards the limit of its user until it ends.
// It counts towards the limit of all users only while it reads a page, so that a slow client does not delay others.
type turns struct {
	users *inflight.Requests[uuid.UUID]
	reads *inflight.Requests[struct{}]
}

func newTurns() turns {
	return turns{
		users: inflight.New[uuid.UUID](inflight.Bounds{InFlight: maxWaiting, AtOnce: turnsPerUser, Wait: turnWait}),
		reads: inflight.New[struct{}](inflight.Bounds{InFlight: maxReads, AtOnce: turnsOfReads, Wait: turnWait}),
	}
}

// errBusy reports that too many searches and exports are running.
var errBusy = errors.New("too many searches and exports are running")

// LogTurn runs serve, which searches or exports a log, once the user has fewer than turnsPerUser others running. If
// that takes longer than turnWait, it writes a 429 and returns ErrAnswered.
func (h *Settings) LogTurn(v *Request, serve func() error) error {
	turn, err := h.turns.users.Enter(v.R.Context(), v.Current.User.ID)
	if err == nil {
		defer turn.Leave(false)
		err = serve()
	} else if v.R.Context().Err() == nil {
		err = errBusy
	}
	if !errors.Is(err, errBusy) {
		return err
	}
	v.W.Header().Set("Retry-After", strconv.Itoa(int(turnWait/time.Second)))
	h.Pages.ShowError(v.W, v.R, &ui.Message{
		Frame:   h.errorFrame(v),
		Status:  http.StatusTooManyRequests,
		Heading: "Too many searches and exports are running",
		Text:    "Wait until one of them has finished, then try again.",
	})
	return ErrAnswered
}

// ReadLog runs read, which reads a page of a log, once fewer than turnsOfReads others are running. It returns errBusy
// if that takes longer than turnWait.
func (h *Settings) ReadLog(ctx context.Context, read func() error) error {
	turn, err := h.turns.reads.Enter(ctx, struct{}{})
	switch {
	case err == nil:
		defer turn.Leave(false)
		return read()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errBusy
}
