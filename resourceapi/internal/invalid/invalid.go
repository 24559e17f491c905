// Package invalid is the error of a request with invalid fields or parameters.
//
// The domain returns it from its checks, and the endpoints answer it with status 400 and error.fields.
package invalid

// Fields are messages for the user, by the name of the field or parameter.
type Fields map[string]string

// Error returns a text without the messages, which may repeat what the user wrote.
func (f Fields) Error() string { return "invalid fields" }

// OrNil returns nil instead of a non-nil error that holds an empty map.
func (f Fields) OrNil() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Join adds the messages of err, if it is a Fields, and returns f or nil. Existing messages are not replaced.
func (f Fields) Join(err error) error {
	if more, ok := err.(Fields); ok {
		for name, message := range more {
			if _, exists := f[name]; !exists {
				f[name] = message
			}
		}
	}
	return f.OrNil()
}
