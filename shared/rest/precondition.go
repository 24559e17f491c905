package rest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/apierr"
)

// The version of a record is its entity tag, which a read returns in ETag. A change with the tag in If-Match is
// refused if the record was changed in between (RFC 9110, section 13.1.1; contract, section 6). A read with the tag
// in If-None-Match returns 304 if nothing changed (section 13.1.2). An intermediary that compresses a response may make
// its tag weak, so a weak tag is the same as the strong one in both headers (contract, section 6a).

// Tag returns the entity tag of a version (RFC 9110, section 8.8.3).
func Tag(version int) string { return fmt.Sprintf(`"%d"`, version) }

// ErrStale is returned for a record at a version that the conditions exclude: it was changed since the caller read it.
var ErrStale = errors.New("the record was changed since it was read")

// Conditions are the preconditions of a request. The zero value has none.
type Conditions struct{ match, noneMatch *tags }

// tags are the tags of one header: any tag (*) or the listed ones.
type tags struct {
	any    bool
	listed []string
}

// ReadConditions reads If-Match and If-None-Match. The error is an *apierr.Error.
func ReadConditions(h http.Header) (c Conditions, err error) {
	if c.match, err = readTags(h, "If-Match"); err == nil {
		c.noneMatch, err = readTags(h, "If-None-Match")
	}
	return c, err
}

// readTags reads the tags of a header, weak ones as strong ones, or returns nil without the header. Empty elements are
// ignored, and tags may contain commas (sections 5.6.1.2 and 8.8.3).
func readTags(h http.Header, name string) (*tags, error) {
	values, given := h.Values(name), &tags{}
	if len(values) == 0 {
		return nil, nil
	}
	text := strings.Trim(strings.Join(values, ","), " \t")
	if text == "*" {
		return &tags{any: true}, nil
	}
	refusal := apierr.New(apierr.Invalid, name+` must be * or the ETag of a version, with its quotes, such as "3".`)
	for text = strings.Trim(text, " \t,"); text != ""; text = strings.TrimLeft(text, " \t,") {
		opaque := strings.TrimPrefix(text, "W/")
		if !strings.HasPrefix(opaque, `"`) {
			return nil, refusal
		}
		inside, rest, closed := strings.Cut(opaque[1:], `"`)
		after := strings.TrimLeft(rest, " \t")
		if !closed || (after != "" && after[0] != ',') {
			return nil, refusal
		}
		given.listed = append(given.listed, `"`+inside+`"`)
		text = after
	}
	if len(given.listed) == 0 {
		return nil, refusal
	}
	return given, nil
}

// CheckChange returns ErrStale unless the conditions allow a change of the version.
func (c Conditions) CheckChange(version int) error {
	if !c.matches(version) || c.seen(version) {
		return ErrStale
	}
	return nil
}

// ServeRead sets the entity tag of the version and calls serve to write the record. It writes 304 instead if the
// caller has the version, and returns ErrStale if If-Match excludes it.
func (c Conditions) ServeRead(w http.ResponseWriter, version int, serve func()) error {
	if !c.matches(version) {
		return ErrStale
	}
	w.Header().Set("ETag", Tag(version))
	if c.seen(version) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	serve()
	return nil
}

// matches reports whether the version satisfies If-Match.
func (c Conditions) matches(version int) bool {
	return c.match == nil || c.match.any || slices.Contains(c.match.listed, Tag(version))
}

// seen reports whether If-None-Match names the version. Then a read need not return the record, and a change must be
// refused.
func (c Conditions) seen(version int) bool {
	return c.noneMatch != nil && (c.noneMatch.any || slices.Contains(c.noneMatch.listed, Tag(version)))
}
