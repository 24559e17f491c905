// Package rest reads and answers the requests of a JSON API, for both services: bodies, query parameters, cursors,
// pages, preconditions, idempotent writes and refusals (spec 2.4; contract, sections 6 and 6a).
//
//	rest.go          refusals
//	body.go          bodies
//	query.go         query parameters and filters
//	cursor.go        cursors
//	page.go          pages that are encoded while their rows are read
//	collection.go    pages of lists that are short enough to be read as a whole
//	precondition.go  conditional requests
//	idempotency.go   writes that clients can repeat
//	table.go         the stored responses to such writes, in Postgres
//	time.go          times
package rest

import (
	"errors"

	"github.com/almonerhq/almoner/shared/contract/apierr"
)

// Problems is the error of a request with invalid fields or parameters: messages for the user, by the name of the field
// or parameter. The domain returns it from its checks, and endpoints answer it with status 400 and error.fields.
type Problems map[string]string

// Error returns a text without the messages, which may repeat what the user wrote.
func (p Problems) Error() string { return "invalid fields" }

// OrNil returns nil instead of a non-nil error that holds an empty map.
func (p Problems) OrNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// Note adds a message, unless it is "".
func (p Problems) Note(name, message string) {
	if message != "" {
		p[name] = message
	}
}

// Join adds the messages of err, if it is a Problems, and returns p or nil. Existing messages are not replaced.
func (p Problems) Join(err error) error {
	if more, ok := err.(Problems); ok {
		for name, message := range more {
			if _, exists := p[name]; !exists {
				p[name] = message
			}
		}
	}
	return p.OrNil()
}

// Refusals are the errors of a module's domain with the API error for each.
type Refusals []Refusal

// A Refusal is the API error for one error of the domain.
type Refusal struct {
	Err error
	As  *apierr.Error
}

// Of returns the API error for err. An error that is not listed passes unchanged.
func (r Refusals) Of(err error) error {
	if problems, ok := errors.AsType[Problems](err); ok {
		return &apierr.Error{
			Kind:    apierr.Invalid,
			Message: "The request is not valid. error.fields says what to correct.",
			Fields:  problems,
		}
	}
	for _, one := range r {
		if errors.Is(err, one.Err) {
			return one.As
		}
	}
	return err
}
