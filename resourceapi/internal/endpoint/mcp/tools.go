package mcp

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/google/uuid"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// A tool is one tool that an assistant may call. tools.json has its name, title, description and schemas.
type tool struct {
	need      perm.Permission // empty if membership suffices
	arguments []string        // the names of all arguments
	// read parses the arguments without store access. Its error is reported to the assistant.
	read func(arguments rest.Object, workspaceID uuid.UUID) (call, error)
}

// A call is a tool call with parsed arguments.
type call struct {
	// readStanding reads the standing and the data for answer in one round trip (gate.Plan.ReadStanding). If nil, only
	// the standing is read.
	readStanding func(context.Context, standing.Query) (standing.Standing, error)
	// needsRead means that answer needs the data that readStanding reads and cannot read it itself.
	needsRead bool
	// searches means that answer searches.
	searches bool
	// answer runs once the gate admitted the request. A mistake that the user can correct is a result; an error fails
	// the whole request.
	answer func(ctx context.Context, caller gate.Caller) (result, error)
}

// prepare parses the arguments. A module that is off and an invalid argument are reported as a result, because an
// assistant reads results and can correct the call.
func (t tool) prepare(arguments json.RawMessage, workspaceID uuid.UUID) call {
	c, err := t.readArguments(arguments, workspaceID)
	answer := c.answer
	c.answer = func(ctx context.Context, caller gate.Caller) (result, error) {
		switch {
		case t.need != "" && caller.Module != nil:
			off := failed(caller.Module.Message)
			off.refused = caller.Module.Kind == apierr.Forbidden
			return off, nil
		case err != nil:
			return failed(err.Error()), nil
		}
		return answer(ctx, caller)
	}
	return c
}

func (t tool) readArguments(arguments json.RawMessage, workspaceID uuid.UUID) (call, error) {
	if arguments == nil || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	object, err := rest.ParseObject(arguments)
	if err != nil {
		return call{}, notArguments
	}
	if err := t.checkNames(object); err != nil {
		return call{}, err
	}
	return t.read(object, workspaceID)
}

// toolsJSON lists the tools as assistants see them. Each has the title, the description and the schemas of one of
// Endpoint.tools. A nullable date has no list of types, which some models' providers refuse.
//
//go:embed tools.json
var toolsJSON []byte

// definitions returns the tools of toolsJSON. They are read-only, so that clients need not ask the user before a call.
func definitions() []sdk.Tool {
	var listed []struct {
		Name, Title, Description  string
		InputSchema, OutputSchema json.RawMessage
	}
	if err := json.Unmarshal(toolsJSON, &listed); err != nil {
		panic(err) // only if the embedded file is invalid
	}
	tools := make([]sdk.Tool, len(listed))
	for i, one := range listed {
		tools[i] = sdk.Tool{
			Name:         one.Name,
			Title:        one.Title,
			Description:  one.Description,
			InputSchema:  one.InputSchema,
			OutputSchema: one.OutputSchema,
			Annotations: &sdk.ToolAnnotations{
				Title:           one.Title,
				ReadOnlyHint:    true,
				DestructiveHint: new(false),
				IdempotentHint:  true,
				OpenWorldHint:   new(false),
			},
		}
	}
	return tools
}

// A sentence is an error message for the assistant.
type sentence string

func (s sentence) Error() string { return string(s) }

const notArguments = sentence("The arguments must be one JSON object without duplicate keys.")

// quotedName matches the names of unknown arguments that an error message quotes. Others may contain invisible text.
var quotedName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// checkNames refuses an unknown argument, since ignoring it would produce a wrong answer.
func (t tool) checkNames(arguments rest.Object) error {
	for _, key := range slices.Sorted(maps.Keys(arguments)) {
		if slices.Contains(t.arguments, key) {
			continue
		}
		if len(t.arguments) == 0 {
			return sentence("This tool takes no arguments.")
		}
		name := ""
		if quotedName.MatchString(key) {
			name = " " + strconv.Quote(key)
		}
		return sentence("Unknown argument" + name + ". This tool takes only these arguments: " +
			strings.Join(t.arguments, ", ") + ".")
	}
	return nil
}

// textOrNumber returns an argument as it would appear in a query string. Assistants send null or "" for optional
// arguments that they mean to omit, and some send numbers as text.
func textOrNumber(arguments rest.Object, key string) (text string, given bool, err error) {
	if !arguments.Has(key) || arguments.Null(key) {
		return "", false, nil
	}
	if text, ok := arguments.Text(key); ok {
		return text, text != "", nil
	}
	var number json.Number
	if json.Unmarshal(arguments[key], &number) == nil {
		return plain(number), true, nil
	}
	return "", false, sentence(key + " must be a string or a number.")
}

// plain formats a whole number without a point or an exponent: 2.0 and 1e1 become 2 and 10.
func plain(number json.Number) string {
	value, err := number.Float64()
	if err != nil || value != math.Trunc(value) || math.Abs(value) > 1<<53 {
		return number.String()
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}

// A connection is the result of whoami.
type connection struct {
	User        party    `json:"user"`
	Workspace   party    `json:"workspace"`
	Permissions []string `json:"permissions"`
	Connection  access   `json:"connection"`
}

type party struct {
	ID   uuid.UUID `json:"id"`
	Name string    `json:"name"`
}

type access struct {
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	ClientID string    `json:"clientId,omitempty"`
	Since    rest.Time `json:"since"`
	EndsAt   rest.Time `json:"endsAt"`
}

// readWhoami needs no permission, so that a caller that is refused everything else can find out why.
func (e *Endpoint) readWhoami(rest.Object, uuid.UUID) (call, error) {
	var names *standing.Names
	return call{
		needsRead: true,
		readStanding: func(ctx context.Context, q standing.Query) (standing.Standing, error) {
			s, found, err := e.Store.StandingAndNames(ctx, q)
			names = &found
			return s, err
		},
		answer: func(_ context.Context, caller gate.Caller) (result, error) {
			if names == nil {
				return failed("Call this tool only once in a batch."), nil
			}
			return succeeded(connection{
				User:        party{caller.User, plainText(names.User)},
				Workspace:   party{caller.WorkspaceID, plainText(names.Workspace)},
				Permissions: caller.Permissions.Strings(),
				Connection: access{
					caller.Kind,
					plainText(names.Credential),
					caller.ClientID,
					rest.Time(names.CreatedAt),
					rest.Time(caller.EndsAt),
				},
			}, 1)
		},
	}, nil
}

// plainText removes invisible characters from user-written text, so that an assistant reads what a person sees. It
// removes bidirectional controls, control characters and tags. A single joiner after a visible character is
// preserved, as in Persian and emoji, and so are the two emoji variation selectors; sequences of them are removed
// because they can carry a hidden message.
func plainText(text string) string {
	if !strings.ContainsFunc(text, unseen) {
		return text
	}
	var out strings.Builder
	follows := "" // the invisible characters allowed at this position
	for _, r := range text {
		switch {
		case !unseen(r):
			follows = joiners + selectors
		case !strings.ContainsRune(follows, r):
			continue
		case strings.ContainsRune(selectors, r):
			follows = joiners
		default:
			follows = ""
		}
		out.WriteRune(r)
	}
	return out.String()
}

const (
	joiners   = "\u200c\u200d"
	selectors = "\ufe0e\ufe0f"
)

// unseen reports whether r is invisible: a control other than tab and line feed, or a default-ignorable character.
func unseen(r rune) bool {
	if r == '\n' || r == '\t' || unicode.Is(unicode.Prepended_Concatenation_Mark, r) {
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// A page has the shape of the REST list (spec 2.4).
type page struct {
	Data []json.RawMessage `json:"data"`
	Meta struct {
		Count      int    `json:"count"`
		NextCursor string `json:"nextCursor,omitempty"`
	} `json:"meta"`
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
	if problems, ok := errors.AsType[rest.Problems](err); ok {
		err = sentence(strings.Join(problems.Lines(), "\n"))
	}
	if err != nil {
		return call{}, err
	}
	within := func(ctx context.Context) programme.Query {
		bounded := query
		bounded.Into = func() programme.Sink { return &recordSink{reserve: gate.ByteReserver(ctx)} }
		return bounded
	}
	var fetched *programme.Page
	c := call{answer: func(ctx context.Context, _ gate.Caller) (result, error) {
		if fetched != nil {
			return e.showPage(query, *fetched)
		}
		found, err := e.Store.Page(ctx, within(ctx))
		if errors.Is(err, programme.ErrTooExpensive) {
			return failed(programme.ErrTooExpensive.Message), nil
		}
		if err != nil {
			return result{}, err
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

func (e *Endpoint) showPage(query programme.Query, found programme.Page) (result, error) {
	records := found.Sink.(*recordSink) // by query.Into
	p := page{Data: records.data}
	p.Meta.Count = len(records.data)
	if p.Data == nil {
		p.Data = []json.RawMessage{}
	}
	if found.More {
		last := records.last
		p.Meta.NextCursor = programme.SealCursor(e.Cursors, rest.Position{CreatedAt: last.CreatedAt, ID: last.ID},
			query.WorkspaceID, query.Filter)
	}
	return succeeded(p, p.Meta.Count)
}

// unknownProgramme is also the message for a programme of another workspace.
const unknownProgramme = "There is no programme with this id in this workspace. Use list_programmes to find an id."

func (e *Endpoint) readGet(arguments rest.Object, workspaceID uuid.UUID) (call, error) {
	text, ok := arguments.Text("id")
	if !ok {
		return call{}, sentence("id: Must be the id of a programme, as a string.")
	}
	id, err := web.ParseID(text)
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
		answer: func(ctx context.Context, caller gate.Caller) (result, error) {
			if !fetched {
				p, err := e.Store.Programme(ctx, caller.WorkspaceID, id)
				if err != nil && !errors.Is(err, programme.ErrNotFound) {
					return result{}, err
				}
				if err == nil {
					found = &p
				}
			}
			if found == nil {
				return failed(unknownProgramme), nil
			}
			return succeeded(encode(*found), 1)
		},
	}, nil
}

// encode returns a programme in the form of the REST routes (contract, section 6), without invisible characters.
func encode(p programme.Programme) json.RawMessage {
	p.Name, p.Summary, p.ExternalID = plainText(p.Name), plainText(p.Summary), plainText(p.ExternalID)
	return programme.AppendRecord(nil, p)
}
