package audit

// An Action names what happened, as <noun>.<past participle>. It is the column action of account.audit_events and the
// member action of the export.
type Action = string

// The actions. Other code uses the constants (TestActions_AreNamedOnlyInTheTable).
const (
	SignInSucceeded   Action = "sign_in.succeeded"
	SignInFailed      Action = "sign_in.failed"
	SignInRefused     Action = "sign_in.refused"
	SignInProved      Action = "sign_in.proved"
	SignInEnded       Action = "sign_in.ended"
	SignInOthersEnded Action = "sign_in.others_ended"
	IdentityLinked    Action = "identity.linked"
	IdentityUnlinked  Action = "identity.unlinked"
	PasskeyAdded      Action = "passkey.added"
	PasskeyRemoved    Action = "passkey.removed"
	PasskeyStopped    Action = "passkey.stopped"

	CodeFailed            Action = "sign_in.code_failed"
	AuthenticatorAdded    Action = "authenticator.added"
	AuthenticatorRemoved  Action = "authenticator.removed"
	RecoveryCodesReplaced Action = "recovery_codes.replaced"
	RecoveryCodeUsed      Action = "recovery_code.used"

	GrantConsented         Action = "grant.consented"
	GrantRevoked           Action = "grant.revoked"
	GrantRefused           Action = "grant.refused"
	GrantNarrowed          Action = "grant.narrowed"
	ConnectorPolicyChanged Action = "connector_policy.changed"
	TokenCreated           Action = "token.created"
	TokenRevoked           Action = "token.revoked"
	ClientRegistered       Action = "client.registered"
	ClientChanged          Action = "client.changed"
	ClientSecretReplaced   Action = "client.secret_replaced"
	ClientDeleted          Action = "client.deleted"
	ConnectionsExported    Action = "connections.exported"
	AuditExported          Action = "audit.exported"

	OrganisationAdded        Action = "organisation.added"
	WorkspaceAdded           Action = "tenant.added"
	ModuleChanged            Action = "module.changed"
	FeatureChanged           Action = "feature.changed"
	SecondFactorChanged      Action = "second_factor.changed"
	MemberAdded              Action = "member.added"
	MemberPermissionsChanged Action = "member.permissions_changed"
	MemberRemoved            Action = "member.removed"
	MemberLeft               Action = "member.left"
	InvitationCreated        Action = "invitation.created"
	InvitationRenewed        Action = "invitation.renewed"
	InvitationWithdrawn      Action = "invitation.withdrawn"
	InvitationDeclined       Action = "invitation.declined"
	AccessRequested          Action = "access.requested"
	UserAdded                Action = "user.added"
	UserRenamed              Action = "user.renamed"
	UserPasswordSet          Action = "user.password_set"
	UserPasswordChanged      Action = "user.password_changed"
	UserPasswordReset        Action = "user.password_reset"
	UserPasswordRemoved      Action = "user.password_removed"
	UserResetRequested       Action = "user.reset_requested"
	UserMailsChanged         Action = "user.mails_changed"
	UserDisabled             Action = "user.disabled"
	UserEnabled              Action = "user.enabled"
	UserDeleted              Action = "user.deleted"
	UserEmailRequested       Action = "user.email_change_requested"
	UserEmailStopped         Action = "user.email_change_stopped"
	UserEmailChanged         Action = "user.email_changed"

	ProgrammeErased  Action = "programme.erased"
	FormErased       Action = "form.erased"
	SubmissionErased Action = "submission.erased"
	SupporterErased  Action = "supporter.erased"

	WebhookAdded    Action = "webhook.added"
	WebhookDeleted  Action = "webhook.deleted"
	WebhookEnabled  Action = "webhook.enabled"
	WebhookDisabled Action = "webhook.disabled"

	WebhookSecretReplaced Action = "webhook.secret_replaced"
	FormExported          Action = "form.exported"

	KeyRotated  Action = "key.rotated"
	KeyPromoted Action = "key.promoted"
	KeyResealed Action = "key.resealed"
	KeyRemoved  Action = "key.removed"

	RetentionRun Action = "retention.run"
)
