package admin

// CommandsOf, ExtrasOf and ACLOf let tests compare every role and version with docs/acl.md.
var CommandsOf, ExtrasOf, ACLOf = commandsOf, extrasOf, aclOf
