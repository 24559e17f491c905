package settings

import (
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// EventView describes an event to the user reader, whom it may concern, or to a reader of the workspace's log if reader
// is nil.
func EventView(e audit.Entry, reader *uuid.UUID) ui.Event {
	if reader != nil && e.UserID != nil && *e.UserID == *reader {
		e.Person = "" // readers know their own name
	}
	out := ui.Event{At: e.At, What: what(e), RequestID: e.RequestID, Alarming: alarming(e)}
	out.Where, _ = e.Detail["address"].(string)
	switch {
	case reader != nil && e.Actor == "user:"+reader.String():
	case e.ActorName != "":
		out.Who = e.ActorName
	case strings.HasPrefix(e.Actor, "client:"):
		out.Who = "The application"
	case e.Actor == "admin":
		out.Who = "An administrator of the deployment"
	case e.Actor == "system":
		out.Who = "This service"
	case e.Actor == "anonymous":
		out.Who = "Not signed in"
	default:
		out.Who = e.Actor
	}
	return out
}

// placeholder matches a detail in the text of an audit.Description, with the space before it.
var placeholder = regexp.MustCompile(` ?\{[a-z]+\}`)

// what describes the event. If this version does not know the action, what returns the action itself.
func what(e audit.Entry) string {
	d, known := audit.Describe(e.Action)
	if !known {
		return e.Action
	}
	return placeholder.ReplaceAllStringFunc(d.Text, func(found string) string {
		space, name, _ := strings.Cut(strings.TrimSuffix(found, "}"), "{")
		text := detail(e, name)
		if text == "" {
			return ""
		}
		return space + text
	})
}

func alarming(e audit.Entry) bool {
	switch grant.Reason(text(e, "reason")) {
	case grant.Replayed, grant.CodeReused, grant.CodeGuessed:
		return true
	}
	d, _ := audit.Describe(e.Action)
	return d.Alarming
}

// Device returns the display name of a browser and its system. The User-Agent header is not proof of either.
func Device(agent string) string { return session.DeviceName(agent) }
