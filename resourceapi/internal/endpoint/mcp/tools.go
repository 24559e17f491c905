package mcp

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// readOnly is what every tool here says of itself, so that clients need not ask before they call it.
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

// A sentence is an error that an assistant reads.
type sentence string

func (s sentence) Error() string { return string(s) }

const notArguments = sentence("The arguments must be one JSON object, with each key at most once.")

// knows refuses an argument that the tool does not take: left out silently, it would make the answer a wrong one.
func (t tool) knows(arguments strictjson.Object) error {
	for key := range arguments {
		if slices.Contains(t.arguments, key) {
			continue
		}
		if len(t.arguments) == 0 {
			return sentence("This tool takes no arguments.")
		}
		return sentence("This tool takes no other arguments than: " + strings.Join(t.arguments, ", ") + ".")
	}
	return nil
}

// textOrNumber is an argument as it would stand in a query string. Assistants fill in optional arguments that they mean
// to leave out with null or "", and some write numbers as text.
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
	return "", false, sentence(key + " must be a text or a number.")
}

// plain writes a whole number without a point or an exponent: 2.0 and 1e1, which are integers too, as 2 and 10.
func plain(number json.Number) string {
	value, err := number.Float64()
	if err != nil || value != math.Trunc(value) || math.Abs(value) > 1<<53 {
		return number.String()
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}
