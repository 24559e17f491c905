package list

import (
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/jsontime"

	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
)

// Filters are the filters that a list supports.
type Filters struct {
	Updated  bool     // updatedSince
	Statuses []string // values of status; none if empty
	Created  bool     // createdSince and createdBefore
}

// Names returns the query parameters of the filters.
func (f Filters) Names() []string {
	var names []string
	if f.Updated {
		names = append(names, "updatedSince")
	}
	if len(f.Statuses) > 0 {
		names = append(names, "status")
	}
	if f.Created {
		names = append(names, "createdSince", "createdBefore")
	}
	return names
}

// read parses the filters in values. It adds messages about invalid values to problems.
func (f Filters) read(values map[string]string, problems invalid.Fields) Filter {
	status, given := values["status"]
	if given && !slices.Contains(f.Statuses, status) {
		problems["status"] = "Must be one of: " + strings.Join(f.Statuses, ", ") + "."
	}
	return Filter{
		UpdatedSince:  readTime(values, "updatedSince", problems),
		Status:        status,
		CreatedSince:  readTime(values, "createdSince", problems),
		CreatedBefore: readTime(values, "createdBefore", problems),
	}
}

func readTime(values map[string]string, name string, problems invalid.Fields) time.Time {
	text, given := values[name]
	if !given {
		return time.Time{}
	}
	t, err := jsontime.Parse(text)
	if err != nil {
		problems[name] = jsontime.Message
	}
	return t
}

// suffix returns text that is added to the name of the list in a cursor. A cursor is valid only with the same filter.
func (f Filter) suffix() string {
	suffix := ""
	if !f.UpdatedSince.IsZero() {
		suffix += " since " + jsontime.Format(f.UpdatedSince)
	}
	if f.Status != "" {
		suffix += " with status " + f.Status
	}
	if !f.CreatedSince.IsZero() {
		suffix += " created since " + jsontime.Format(f.CreatedSince)
	}
	if !f.CreatedBefore.IsZero() {
		suffix += " created before " + jsontime.Format(f.CreatedBefore)
	}
	return suffix
}
