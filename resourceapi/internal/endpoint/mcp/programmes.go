package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// A page has the shape of the REST list (spec 2.4).
type page struct {
	Data []json.RawMessage `json:"data"`
	Meta meta              `json:"meta"`
}

type meta struct {
	Count      int    `json:"count"`
	NextCursor string `json:"nextCursor,omitempty"`
}

// readList parses the arguments with the REST route's query reader, so that both have the same rules. As there, the
// page is read in the round trip of the standing unless it is a search.
func (e *Endpoint) readList(arguments rest.Object, workspaceID uuid.UUID) (call, error) {
	values := url.Values{}
	for key := range arguments {
		text, given, err := textOrNumber(arguments, key)
		if err != nil {
			return call{}, err
		}
		if given {
			values.Set(key, text)
		}
	}
	query, err := programme.ReadQuery(values.Encode(), workspaceID, e.Cursors)
	if err != nil {
		return call{}, inWords(err)
	}
	within := func(ctx context.Context) programme.Query {
		bounded := query
		bounded.Into = func() programme.Sink { return &recordSink{reserve: gate.ByteReserver(ctx)} }
		return bounded
	}
	var fetched *programme.Page
	c := call{answer: func(ctx context.Context, _ gate.Caller) (*sdk.CallToolResult, error) {
		if fetched != nil {
			return e.showPage(query, *fetched)
		}
		found, err := e.Store.Page(ctx, within(ctx))
		if errors.Is(err, programme.ErrTooExpensive) {
			return failed(programme.ErrTooExpensive.Message), nil
		}
		if err != nil {
			return nil, err
		}
		return e.showPage(query, found)
	}}
	c.searches = query.Filter.Search != ""
	if !c.searches {
		c.readStanding = func(ctx context.Context, q standing.Query) (standing.Standing, error) {
			s, found, err := e.Store.StandingAndPage(ctx, q, within(ctx))
			fetched = &found
			return s, err
		}
	}
	return c, nil
}

// inWords returns the problems of all arguments as one text.
func inWords(err error) error {
	problems, ok := errors.AsType[rest.Problems](err)
	if !ok {
		return err
	}
	lines := make([]string, 0, len(problems))
	for _, name := range slices.Sorted(maps.Keys(problems)) {
		lines = append(lines, name+": "+problems[name])
	}
	return sentence(strings.Join(lines, "\n"))
}

func (e *Endpoint) showPage(query programme.Query, found programme.Page) (*sdk.CallToolResult, error) {
	records := found.Sink.(*recordSink) // by query.Into
	p := page{Data: records.data, Meta: meta{Count: len(records.data)}}
	if p.Data == nil {
		p.Data = []json.RawMessage{}
	}
	if found.More {
		last := records.last
		p.Meta.NextCursor = programme.SealCursor(e.Cursors, rest.Position{CreatedAt: last.CreatedAt, ID: last.ID},
			query.WorkspaceID, query.Filter)
	}
	return succeeded(p)
}

// unknownProgramme is also the message for a programme of another workspace.
const unknownProgramme = "There is no programme with this id in this workspace. Use list_programmes to find an id."

func (e *Endpoint) readGet(arguments rest.Object, workspaceID uuid.UUID) (call, error) {
	text, ok := arguments.Text("id")
	if !ok {
		return call{}, sentence("id: Must be the id of a programme, as a string.")
	}
	id, err := identity.Parse(text)
	if err != nil {
		return call{}, sentence(unknownProgramme)
	}
	var fetched bool
	var found *programme.Programme
	return call{
		readStanding: func(ctx context.Context, q standing.Query) (s standing.Standing, err error) {
			s, found, err = e.Store.StandingAndProgramme(ctx, q, workspaceID, id)
			fetched = true
			return s, err
		},
		answer: func(ctx context.Context, caller gate.Caller) (*sdk.CallToolResult, error) {
			if !fetched {
				p, err := e.Store.Programme(ctx, caller.WorkspaceID, id)
				if err != nil && !errors.Is(err, programme.ErrNotFound) {
					return nil, err
				}
				if err == nil {
					found = &p
				}
			}
			if found == nil {
				return failed(unknownProgramme), nil
			}
			return succeeded(encode(*found))
		},
	}, nil
}

// encode returns a programme in the form of the REST routes (contract, section 6), without invisible characters.
func encode(p programme.Programme) json.RawMessage {
	p.Name, p.Summary, p.ExternalID = plainText(p.Name), plainText(p.Summary), plainText(p.ExternalID)
	return programme.AppendRecord(nil, p)
}

// resultFrame is the size of an answer to one call without its records.
const resultFrame = 4096

// freeBytes of each result are not reserved, so that pages of ordinary records are never cut short.
const freeBytes = 128 << 10

// A recordSink collects the programmes of a page as JSON until the answer reaches rest.MaxPageBytes.
type recordSink struct {
	data  []json.RawMessage
	bytes int
	last  programme.Programme

	reserve func(bytes int) bool
	ended   bool // no room was left
}

// copies is how many copies of the records the SDK holds while it sends a result.
const copies = 5

// Take implements programme.Sink.
func (r *recordSink) Take(p programme.Programme) bool {
	encoded := encode(p)
	size := sizeInResult(encoded)
	if r.ended || len(r.data) > 0 && r.bytes+size+resultFrame > rest.MaxPageBytes {
		return false
	}
	r.data, r.bytes, r.last = append(r.data, encoded), r.bytes+size, p
	r.ended = r.bytes > freeBytes && !r.reserve(copies*len(encoded))
	return true
}

// sizeInResult returns the size of encoded within a result, which contains it twice: structured, and as text with
// escaped quotes and backslashes. <, > and & count six bytes each, as the SDK writes them.
func sizeInResult(encoded []byte) int {
	size := 2 * (len(encoded) + len(","))
	for _, c := range encoded {
		switch c {
		case '"', '\\':
			size++
		case '<', '>', '&':
			size += 2 * (len(`\u003c`) - 1)
		}
	}
	return size
}
