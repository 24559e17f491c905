package mcp

import (
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// readOnly returns the annotations of a read-only tool, so that clients need not ask the user before a call.
func readOnly(title string) *sdk.ToolAnnotations {
	no := false
	return &sdk.ToolAnnotations{
		Title:           title,
		ReadOnlyHint:    true,
		DestructiveHint: &no,
		IdempotentHint:  true,
		OpenWorldHint:   &no,
	}
}

// A sentence is an error message for the assistant.
type sentence string

func (s sentence) Error() string { return string(s) }

const notArguments = sentence("The arguments must be one JSON object without duplicate keys.")

// quotedName matches the names of unknown arguments that an error message quotes. Others may contain invisible text.
var quotedName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// checkNames refuses an unknown argument, since ignoring it would produce a wrong answer.
func (t tool) checkNames(arguments strictjson.Object) error {
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
func textOrNumber(arguments strictjson.Object, key string) (text string, given bool, err error) {
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
