package consent

import (
	"time"

	"github.com/almonerhq/almoner/authserver/internal/grant"
)

// A Connection is what became of one consent, with the names that its user knows.
type Connection struct {
	Grant       grant.Grant
	Application string
	Workspace   string
}

// Live says whether the application can still act.
func (c Connection) Live(now time.Time) bool {
	return c.Grant.State == grant.Active && now.Before(c.Grant.Ends)
}
