package ui

import (
	"time"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Workspace is a workspace that the user can choose.
type Workspace struct {
	ID, Name, Organisation string
	Chosen                 bool
}

// An Event is one line of a log, in words.
type Event struct {
	At        time.Time
	What      string
	Who       string
	Where     string // address of the browser, or ""
	RequestID string
	Alarming  bool
}

// A Token is a personal access token in the list.
type Token struct {
	ID, Name    string
	Workspace   string // "" if the page is about one workspace
	Permissions perm.Set
	Created     time.Time
	Expires     time.Time
	LastUsed    *time.Time
	Ended       string     // how it ended, or "" while it is active
	EndedAt     time.Time  // zero while it is active
	Replaces    *time.Time // creation time of the token that this one replaces when it is first used, or nil
}
