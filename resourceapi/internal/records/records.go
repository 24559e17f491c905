// Package records serves the records of a workspace over HTTP. It is the common part of the lists, reads and writes of
// all modules.
//
// A module's endpoint decodes its requests and encodes its records; package gate decides who may call.
package records

import (
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/apierr"
	"github.com/almonerhq/almoner/shared/identity"

	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
)

// Refusals are the errors of a module's domain with the API error for each.
type Refusals []Refusal

// A Refusal is the API error for one error of the domain.
type Refusal struct {
	Err error
	As  *apierr.Error
}

// Of returns the API error for err. An error that is not listed passes unchanged.
func (all Refusals) Of(err error) error {
	if problems, ok := errors.AsType[invalid.Fields](err); ok {
		return &apierr.Error{
			Kind:    apierr.Invalid,
			Message: "The request is not valid. error.fields says what to correct.",
			Fields:  problems,
		}
	}
	for _, one := range all {
		if errors.Is(err, one.Err) {
			return one.As
		}
	}
	return err
}

// PathID reads the id of the path. A malformed id yields notFound, since it names no record.
func PathID(r *http.Request, notFound error) (uuid.UUID, error) {
	id, err := identity.Parse(r.PathValue("id"))
	if err != nil {
		return uuid.Nil, notFound
	}
	return id, nil
}
