package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/gate"
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
	answer func(ctx context.Context, caller gate.Caller) (*sdk.CallToolResult, error)
}

// answers are the results of one request, by the key that called returns.
type answers map[string]*sdk.CallToolResult

type answersKey struct{}

func called(tool string, arguments json.RawMessage) string { return tool + "\x00" + string(arguments) }

// prepare reads the messages of a POST and plans to answer their calls before the SDK handles the request.
func (e *Endpoint) prepare(w http.ResponseWriter) gate.Prepare {
	return func(r *http.Request, workspaceID uuid.UUID) (gate.Plan, error) {
		content, err := rest.ReadBody(w, r, maxBody)
		if problem, ok := errors.AsType[*apierr.Error](err); ok && problem.Kind == apierr.Invalid {
			return (&fault{code: jsonrpc.CodeParseError, message: problem.Message}).plan(), nil
		}
		if err != nil {
			return gate.Plan{}, err
		}
		if !isJSON(r.Header) {
			return e.plan(&batch{}, "", content, nil), nil // the SDK refuses the Content-Type
		}
		messages, faulty := readMessages(content)
		if other := checkVersion(r.Header, messages, faulty); other != nil {
			return other.plan(), nil
		}
		if faulty != nil {
			return faulty.plan(), nil
		}
		if len(messages) == 1 && messages[0].isUnknownNotification() {
			return accepted, nil
		}
		b := &batch{messages: len(messages)}
		var need perm.Permission
		for _, m := range messages {
			t, known := e.tools[m.tool]
			if !known { // not a call, or one that the SDK will refuse
				continue
			}
			if need != "" && t.need != "" && t.need != need {
				return mixedBatch.plan(), nil
			}
			if t.need != "" {
				need = t.need
			}
			b.add(called(m.tool, m.arguments), func() call { return t.prepare(m.arguments, workspaceID) })
		}
		return e.plan(b, need, content, idOf(messages)), nil
	}
}

// plan answers the calls, as a search if one of them searches, and passes the answers to the SDK with the request. id
// is the id for refusals.
func (e *Endpoint) plan(b *batch, need perm.Permission, content []byte, id json.RawMessage) gate.Plan {
	var given answers
	answer := func(ctx context.Context, caller gate.Caller) (err error) {
		given, err = b.answer(ctx, caller)
		return err
	}
	plan := gate.Plan{Need: need, ReadStanding: b.readStanding()}
	if b.searches() {
		plan.Search = answer
	}
	plan.Serve = func(w http.ResponseWriter, r *http.Request, caller gate.Caller) error {
		if plan.Search == nil {
			if err := answer(r.Context(), caller); err != nil {
				return err
			}
		}
		r = r.WithContext(context.WithValue(r.Context(), answersKey{}, given))
		r.Body = io.NopCloser(bytes.NewReader(content))
		e.protocol.ServeHTTP(&reply{ResponseWriter: w, id: id}, r)
		return nil
	}
	return plan
}

// accepted is the plan for a message that is accepted and has no effect.
var accepted = gate.Plan{Serve: func(w http.ResponseWriter, _ *http.Request, _ gate.Caller) error {
	w.WriteHeader(http.StatusAccepted)
	return nil
}}

func (f *fault) plan() gate.Plan {
	return gate.Plan{Serve: func(w http.ResponseWriter, r *http.Request, _ gate.Caller) error {
		f.serve(w, r)
		return nil
	}}
}

// prepare parses the arguments. A module that is off and an invalid argument are reported as a result, because an
// assistant reads results and can correct the call.
func (t tool) prepare(arguments json.RawMessage, workspaceID uuid.UUID) call {
	c, err := t.readArguments(arguments, workspaceID)
	answer := c.answer
	c.answer = func(ctx context.Context, caller gate.Caller) (*sdk.CallToolResult, error) {
		switch {
		case t.need != "" && caller.Module != nil:
			return failed(caller.Module.Message), nil
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

// failed returns an error result with a message for the assistant.
func failed(message string) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: message}}}
}

// succeeded returns a result as structured content, as text for clients that read only text, and with the notice that
// it is data, which is for assistants and not for users. User-written text must have gone through plainText.
func succeeded(value any) (*sdk.CallToolResult, error) {
	text, err := web.EncodeJSON(value)
	if err != nil {
		return nil, err
	}
	forAssistants := &sdk.Annotations{Audience: []sdk.Role{"assistant"}, Priority: 1}
	return &sdk.CallToolResult{
		Content: []sdk.Content{
			&sdk.TextContent{Text: string(text)},
			&sdk.TextContent{Text: notice, Annotations: forAssistants},
		},
		StructuredContent: json.RawMessage(text),
	}, nil
}

// maxAnswers bounds the total text, in bytes, of the answers to several messages. A single message is answered in
// full, as on the REST route; ten in one request could hold ten pages of maximum length in memory at once, each in
// several encodings.
const maxAnswers = 1 << 20

const tooLong = "The results of this batch are too large to return together. Send this call separately."

// A batch is the calls of one request in order. Identical calls are merged.
type batch struct {
	messages int
	calls    []counted
}

type counted struct {
	call
	key   string
	times int
}

func (b *batch) add(key string, prepare func() call) {
	for i := range b.calls {
		if b.calls[i].key == key {
			b.calls[i].times++
			return
		}
	}
	b.calls = append(b.calls, counted{prepare(), key, 1})
}

// readStanding returns the function of one call that reads its data in the round trip of the standing: the only call
// or, in a batch, the first that cannot read it otherwise. It returns nil if there is none.
func (b *batch) readStanding() func(context.Context, standing.Query) (standing.Standing, error) {
	for _, c := range b.calls {
		if c.needsRead || b.messages == 1 {
			return c.readStanding
		}
	}
	return nil
}

// searches reports whether one of the calls searches.
func (b *batch) searches() bool {
	return slices.ContainsFunc(b.calls, func(c counted) bool { return c.searches })
}

// answer answers the calls until maxAnswers is reached; the remaining ones get an error and read nothing.
func (b *batch) answer(ctx context.Context, caller gate.Caller) (answers, error) {
	given, length := answers{}, 0
	for _, c := range b.calls {
		if length > maxAnswers {
			given[c.key] = failed(tooLong)
			continue
		}
		result, err := c.answer(ctx, caller)
		if err != nil {
			return nil, err
		}
		if length += c.times * lengthOf(result); length > maxAnswers && b.messages > 1 {
			result = failed(tooLong)
		}
		given[c.key] = result
	}
	return given, nil
}

func lengthOf(result *sdk.CallToolResult) int {
	length := 0
	for _, part := range result.Content {
		if text, ok := part.(*sdk.TextContent); ok {
			length += len(text.Text)
		}
	}
	return length
}
